"""A registry: entries of all kinds, what must stay undecomposed, and overloads torch lacks."""

import pytest
import torch
import torch.fx as fx

from coreai_torch.errors import ConversionError
from coreai_torch.kernels.lowering import KernelLowering
from coreai_torch.lowering.entry import ReplacedLowering, is_built_in
from coreai_torch.lowering.legacy import LegacyLowering
from coreai_torch.lowering.registry import Decomposition, FunctionLowering, Lowering, Registry
from coreai_torch.ops.recognized_composites import CompositeLowering
from coreai_torch.torch_compat import MissingOverload

aten = torch.ops.aten


def body(*_):
    return None


def test_every_kind_of_entry_has_a_target_an_origin_and_a_call():
    kinds = (
        Lowering,
        FunctionLowering,
        Decomposition,
        LegacyLowering,
        CompositeLowering,
        KernelLowering,
        ReplacedLowering,
    )
    for kind in kinds:
        fields = {*kind.__dataclass_fields__, *vars(kind)}
        assert {"target", "origin", "__call__"} <= fields, kind


def test_whole_lists_the_names_of_legacy_lowerings():
    registry = Registry()
    registry.add(LegacyLowering("mylib::op", body))
    registry.add(Lowering(aten.sin.default, body))
    registry.add(Decomposition(aten.cos.default, body))
    assert registry.whole() == {"mylib::op", aten.sin.default}
    assert set(registry.decompositions()) == {aten.cos.default}


def test_an_own_entry_hides_the_built_in_one():
    base = Registry()
    base.add(Lowering(aten.sin.default, body))
    own = Registry(base)
    own.add(LegacyLowering("aten::sin", body), override=True)
    node = fx.Graph().call_function(aten.sin.default, ())
    assert is_built_in(base.for_node(node))
    assert not is_built_in(own.for_node(node))
    assert own.names() == {"aten::sin"}


def test_a_second_entry_for_an_op_is_rejected():
    registry = Registry()
    registry.add(Lowering(aten.sin.default, body))
    with pytest.raises(ConversionError, match="already has a lowering"):
        registry.add(Lowering(aten.sin.default, body))


def test_an_overload_that_torch_lacks_is_listed_as_missing():
    registry = Registry()
    registry.add(Lowering(MissingOverload("aten::not_here.default"), body))
    assert registry.missing == {"aten::not_here.default"}
    assert registry.names() == set()
