"""Compare the forms of a target with torch: all cases of each op that has one."""

from __future__ import annotations

import case_runner
import pytest
import torch

import coreai_torch
from benchmarks import linux_forms
from coreai_torch.lowering.registry import BUILTIN, Lowering, Registry, key, lowers
from coreai_torch.targets import registry_of
from coreai_torch.torch_compat import aten

LINUX = registry_of("linux").own()


def _rows():
    for entry in LINUX:
        plain = BUILTIN.get(key(entry.target))
        assert plain is not None, f"{key(entry.target)} has no plain form"
        for index, case in enumerate((*plain.cases, *entry.cases)):
            param = pytest.param(entry, case, id=f"{key(entry.target)}-{index}")
            yield from case_runner.sized(param)


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize(("entry", "case", "sizes"), list(_rows()))
def test_linux(entry, case, sizes):
    case_runner.check(entry, case, dynamic=sizes == "dynamic", emitted_for="linux")


@pytest.mark.parametrize("entry", LINUX, ids=lambda entry: key(entry.target))
def test_every_form_has_a_plain_form_and_a_reason(entry):
    assert BUILTIN.get(key(entry.target)) is not None
    assert entry.reason


def test_make_bench_forms_measures_every_form():
    assert linux_forms.unmeasured() == []


def _ops(target):
    x = torch.randn(3, 300)
    exported = torch.export.export(_Flip(), (x,))
    program = coreai_torch.TorchConverter(target=target).add_exported_program(exported).to_coreai()
    return str(program)


class _Flip(torch.nn.Module):
    def forward(self, x):
        return x.flip(0)


def test_only_the_linux_target_gathers_for_a_flip():
    assert ("coreai.reverse" in _ops(None), "gather" in _ops(None)) == (True, False)
    assert ("coreai.reverse" in _ops("gpu"), "gather" in _ops("gpu")) == (True, False)
    assert "gather" in _ops("linux")


def test_a_registered_lowering_has_precedence_over_the_form_of_a_target():
    own = Lowering(aten.flip.default, lambda ctx, x, dims: x)
    registry = Registry(registry_of("linux"))
    registry.add(own)
    assert registry.get(key(aten.flip.default)) is own
    assert registry.with_base(BUILTIN).get(key(aten.flip.default)) is own


def test_a_form_of_a_target_needs_a_reason():
    with pytest.raises(TypeError, match="reason"):
        lowers(aten.flip.default, target="linux")
