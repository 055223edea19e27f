"""Chains of constants give eager's numbers, before and after `optimize`.

The runtime's compiler and `optimize` join the constants of a chain. Results equal eager's bit by
bit, signs of zero included, but where `coreai_torch.ir.reassociation` lets two addends join.
"""

from __future__ import annotations

import pytest
import runtime
import torch
from expressions import FLOATS, INTEGERS, allowed_error, expressions, inputs
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table

pytestmark = [
    # int64 is one of the dtypes here; the warning has its own tests.
    pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning"),
]
DTYPES = [*FLOATS, *INTEGERS]
TOGETHER = 40  # expressions in one program
SOUGHT = 100  # programs for each dtype: 20,000 expressions in all


class Outputs(nn.Module):
    """Compute each expression as one output."""

    def __init__(self, expressions):
        super().__init__()
        self.expressions = expressions

    def forward(self, x, y):
        return tuple(expression(x, y) for expression in self.expressions)


def _converted(model, x, y):
    program = torch.export.export(model, (x, y)).run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(program).to_coreai()


def _agrees(got, want, allowed):
    same = (got == want) | (got.isnan() & want.isnan())
    if not want.is_floating_point():
        return bool(same.all())
    same &= (want != 0) | (got.signbit() == want.signbit())
    return bool((same | ((got.double() - want.double()).abs() <= allowed) | allowed.isnan()).all())


def _check(chosen, dtype):
    x, y = inputs(dtype)
    model = Outputs(chosen)
    wants = model(x, y)
    program = _converted(model, x, y)
    for stage in ("before", "after"):
        gots = runtime.run(program, {"x": x, "y": y}).values()
        for expression, got, want in zip(chosen, gots, wants, strict=True):
            allowed = allowed_error(expression, x, y) if dtype in FLOATS else None
            assert _agrees(got, want, allowed), (
                f"{dtype} {stage} optimize: {expression}\n  got  {got.tolist()}"
                f"\n  want {want.tolist()}\n  allowed {allowed}"
            )
        program.optimize()


def _search(dtype, programs, start):
    checked = 0

    @seed(start)
    @settings(
        max_examples=programs,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # an expression is short, and the message shows the one that fails
        suppress_health_check=list(HealthCheck),
    )
    @given(st.lists(expressions(dtype), min_size=TOGETHER, max_size=TOGETHER))
    def search(chosen):
        nonlocal checked
        _check(chosen, dtype)
        checked += len(chosen)

    search()
    return checked


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_constant_arithmetic_matches_eager(dtype):
    assert _search(dtype, 1, start=1) == TOGETHER


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_thousands_of_expressions_match_eager(dtype):
    assert _search(dtype, SOUGHT, start=2) == SOUGHT * TOGETHER
