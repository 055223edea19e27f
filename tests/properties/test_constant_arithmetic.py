"""Chains of constants give eager's numbers, before and after `optimize`.

The runtime's compiler and `optimize` join the constants of a chain. Results equal eager's bit by
bit, signs of zero included, except where `coreai_torch.ir.reassociation` lets two addends join.
Export takes 95 % of the time of a conversion, so the long search builds the ops directly.
"""

from __future__ import annotations

import pytest
import runtime
import torch
from expressions import FLOATS, INTEGERS, SIZE, allowed_error, expressions, inputs
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.program import Program
from coreai_torch.ir import dialect as cai
from coreai_torch.ir import graph, types
from coreai_torch.ir.build import Build

pytestmark = [
    # int64 is one of the dtypes here; the warning has its own tests.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
]
OPS = {"+": cai.add, "-": cai.sub, "*": cai.mul, "/": cai.div, "//": cai.floor_divide}
DTYPES = [*FLOATS, *INTEGERS]
TOGETHER = 20  # expressions in one exported program
EXPORTED = 2  # programs for each dtype; the first one that hypothesis draws is trivial
EXPORTED_SLOW = 20
BUILT_TOGETHER = 100  # expressions in one program that is built directly
BUILT = 40  # programs for each dtype: 20,000 expressions in all


class Outputs(nn.Module):
    """Compute each expression as one output."""

    def __init__(self, expressions):
        super().__init__()
        self.expressions = expressions

    def forward(self, x, y):
        return tuple(expression(x, y) for expression in self.expressions)


def _exported(chosen, x, y):
    program = torch.export.export(Outputs(chosen), (x, y)).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(program).to_coreai()


def _built(chosen, x, y):
    build = Build()
    with build.open():
        ports = [
            graph.Port(name, types.tensor(tuple(t.shape), types.element(types.narrow(t.dtype))))
            for name, t in (("x", x), ("y", y))
        ]
        graph.entrypoint("main", [], ports, lambda _, values: _results(chosen, *values))
    return Program._from_mlir_module(build.module)


def _results(chosen, x, y):
    outputs = []
    for place, expression in enumerate(chosen):
        value = x
        for step in expression.steps:
            value = _lowered(step, value, y)
        outputs.append((f"output_{place}", value))
    return graph.Results([], outputs)


def _lowered(step, value, y):
    if step.op == "neg":
        return cai.neg(value)
    dims = cai.sizes(value)
    if step.op == "reshape twice":
        return cai.reshape(cai.reshape(value, [SIZE // 2, 2]), dims)
    if step.op == "transpose twice":
        turned = cai.transpose(cai.expand_dims(value, [0]), [1, 0])
        return cai.shrink_dims(cai.transpose(turned, [1, 0]), [0])
    if step.op == "widen":
        return cai.cast(cai.cast(value, torch.float32), cai.dtype(value))
    operand = y
    if isinstance(step.operand, torch.Tensor):
        operand = cai.tensor_constant(step.operand)
    elif not isinstance(step.operand, str):
        operand = cai.constant(step.operand, cai.dtype(value))
    if step.op == "/" and step.swapped and isinstance(step.operand, float):
        return cai.mul(cai.div(cai.like(value, 1.0), value), operand)  # as torch computes 3 / x
    left, right = (operand, value) if step.swapped else (value, operand)
    return OPS[step.op](left, right)


def _agrees(got, want, allowed):
    same = (got == want) | (got.isnan() & want.isnan())
    if not want.is_floating_point():
        return bool(same.all())
    same &= (want != 0) | (got.signbit() == want.signbit())
    largest = torch.finfo(want.dtype).max  # in float16, 65504 + 20 rounds up, to infinity
    gap = (got.clamp(-largest, largest).double() - want.double()).abs()
    return bool((same | ((allowed > 0) & (gap <= allowed)) | allowed.isnan()).all())


def _check(chosen, dtype, make):
    x, y = inputs(dtype)
    wants = Outputs(chosen)(x, y)
    program = make(chosen, x, y)
    for stage in ("before", "after"):
        gots = runtime.run(program, {"x": x, "y": y}).values()
        for expression, got, want in zip(chosen, gots, wants, strict=True):
            allowed = allowed_error(expression, x, y) if dtype in FLOATS else None
            assert _agrees(got, want, allowed), (
                f"{dtype} {stage} optimize: {expression}\n  got  {got.tolist()}"
                f"\n  want {want.tolist()}\n  allowed {allowed}"
            )
        program.optimize()


def _search(dtype, make, together, programs, start):
    from hypothesis import HealthCheck, Phase, given, seed, settings
    from hypothesis import strategies as st

    checked = 0

    @seed(start)
    @settings(
        max_examples=programs,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # an expression is short, and the message shows the one that fails
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(expressions(dtype), min_size=together, max_size=together))
    def search(chosen):
        nonlocal checked
        _check(chosen, dtype, make)
        checked += len(chosen)

    search()
    return checked


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_exported_constant_arithmetic_matches_eager(dtype):
    assert _search(dtype, _exported, TOGETHER, EXPORTED, start=1) == EXPORTED * TOGETHER


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_built_constant_arithmetic_matches_eager(dtype):
    assert _search(dtype, _built, BUILT_TOGETHER, 2, start=1) == 2 * BUILT_TOGETHER


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_more_exported_constant_arithmetic_matches_eager(dtype):
    checked = _search(dtype, _exported, TOGETHER, EXPORTED_SLOW, start=2)
    assert checked == EXPORTED_SLOW * TOGETHER


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_more_built_constant_arithmetic_matches_eager(dtype):
    checked = _search(dtype, _built, BUILT_TOGETHER, BUILT, start=3)
    assert checked == BUILT * BUILT_TOGETHER
