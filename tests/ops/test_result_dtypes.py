"""The dtype of a result of operands of several dtypes is that of torch's kernel.

The exported graph may promise another one: some decompositions in torch differ from the kernels.
"""

from __future__ import annotations

import pytest
import torch
from module_runner import check
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils import _pytree as pytree

import coreai_torch
from coreai_torch.ir.types import narrow

aten = torch.ops.aten
_F16, _F32, _I32, _BOOL = torch.float16, torch.float32, torch.int32, torch.bool


@pytest.mark.parametrize(
    ("dtypes", "op"),
    [
        ((_I32, _F32), lambda g, x: aten.threshold_backward(g, x, 0.5)),
        ((_F16, _F32), lambda g, x: aten.threshold_backward(g, x, 0.5)),
        ((_F32, _I32), lambda g, x: aten.threshold_backward(g, x, 0.5)),
        ((_BOOL, _F32), lambda g, x: aten.threshold_backward(g, x, 0.5)),
        ((_F16, _F32), aten.huber_loss),
        ((_F32, _F16), lambda x, y: aten.huber_loss(x, y, 0)),
        ((_F16, _F32), aten.soft_margin_loss),
        ((_F32, _F16, _F32), lambda g, x, y: aten.mse_loss_backward(g, x, y, 0)),
        ((_F32, _F16, _F32), lambda g, x, y: aten.smooth_l1_loss_backward(g, x, y, 0, 1.0)),
        ((_F32, _F16, _F32), lambda g, x, y: aten.soft_margin_loss_backward(g, x, y, 0)),
        ((_F16, _F32, _F32), lambda x, y, z: aten._trilinear(x, y, z, [], [], [], [], 0)),
        ((_F32, _F16, _F32), lambda x, y, z: aten._trilinear(x, y, z, [], [], [], [0], 0)),
    ],
)
def test_dtype_of_mixed_operands(dtypes, op):
    values = torch.tensor([-1.0, 0.0, 0.5, 2.0])
    check(op, tuple((values + 0.25 * n).to(dtype) for n, dtype in enumerate(dtypes)))


# The kernel reads its operand as if it had the dtype of the first; the op is for training alone;
# export does not decompose the op.
_LEFT_OUT = (
    "aten.linalg_solve_triangular",
    "aten.native_dropout_backward",
    "aten.mish_backward",
)


def _example(argument):
    kind = str(argument.type)
    if kind in ("Tensor", "Optional[Tensor]"):
        return torch.full((4,), 0.5)
    examples = {"number": 0.5, "float": 0.5, "int": 0, "SymInt": 0, "bool": False, "str": "none"}
    return examples.get(kind, [4] if kind.startswith("List[") else None)


def _call_of(op):
    """Return example arguments without those that have a default, and the place of each tensor."""
    given = [
        _example(a)
        for a in op._schema.arguments
        if not a.kwarg_only and (not a.has_default_value() or "Tensor" in str(a.type))
    ]
    return given, [i for i, g in enumerate(given) if isinstance(g, torch.Tensor)]


def _dtypes(result):
    return [narrow(leaf.dtype) for leaf in pytree.tree_leaves(result) if torch.is_tensor(leaf)]


def _differences(table):
    for op in table:
        name = str(op).rpartition(".")[0]
        is_plain = isinstance(op, torch._ops.OpOverload) and not op._schema.is_mutable
        if not is_plain or name in _LEFT_OUT or "sparse" in name:
            continue
        given, places = _call_of(op)
        for place in places[:3] if len(places) > 1 else []:
            for dtype in (_F16, _I32, _BOOL):
                args = [g.to(dtype) if i == place else g for i, g in enumerate(given)]
                try:
                    want = _dtypes(op(*args))
                except Exception:  # the example is not a valid call of this op
                    continue
                graph = make_fx(op, decomposition_table=table, tracing_mode="fake")(*args)
                results = graph.graph.output_node().args[0]
                got = _dtypes(
                    [
                        n.meta["val"]
                        for n in pytree.tree_leaves(results)
                        if isinstance(n, torch.fx.Node)
                    ]
                )
                if got != want:
                    yield f"{op} of {[a.dtype for a in args if torch.is_tensor(a)]}: {got}, {want}"


@pytest.mark.slow
def test_decompositions_return_the_dtypes_of_kernels():
    assert list(_differences(dict(coreai_torch.get_decomp_table()))) == []
