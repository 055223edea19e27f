"""Generated inputs on which torch leaves a result undefined are not compared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import get_decomp_table
from coreai_torch.verification.undefined_results import has_undefined_result


class Whole(nn.Module):
    def forward(self, x):
        return x.long() * 2


def exported():
    return torch.export.export(Whole(), (torch.ones(2),)).run_decompositions(get_decomp_table())


@pytest.mark.parametrize(
    ("value", "undefined"),
    [(1.5, False), (-2147483648.0, False), (torch.inf, True), (torch.nan, True), (3e9, True)],
)
def test_casts_out_of_range_are_found(value, undefined):
    assert has_undefined_result(exported(), [torch.tensor([1.0, value])]) is undefined


def test_model_with_a_cast_is_accepted():
    x = torch.tensor([1.5, -2.0, 0.25, 3.0])
    verdict = coreai_torch.verify(Whole(), coreai_torch.convert(Whole(), (x,)), (x,))
    assert verdict.ok
    assert any("infinite" in reason for reason in verdict.left_out)


def test_rows_behind_the_last_offset_of_a_grouped_product_are_undefined():
    class Grouped(nn.Module):
        def forward(self, x, w, offsets):
            return torch.ops.aten._grouped_mm.default(x, w, offsets)

    x, w = torch.randn(4, 8).bfloat16(), torch.randn(2, 8, 8).bfloat16()
    whole, partial = (torch.tensor([2, n], dtype=torch.int32) for n in (4, 3))
    program = torch.export.export(Grouped(), (x, w, whole))
    assert not has_undefined_result(program, [x, w, whole])
    assert has_undefined_result(program, [x, w, partial])


def test_factor_of_an_indefinite_matrix_is_undefined():
    class Factor(nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky_ex(x).L

    program = torch.export.export(Factor(), (torch.eye(2),))
    assert not has_undefined_result(program, [torch.eye(2)])
    assert has_undefined_result(program, [-torch.eye(2)])


class Attention(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(("keys", "undefined"), [(4, True), (16, False)])
def test_attention_that_loses_nan_is_undefined(keys, undefined):
    q, k = torch.ones(1, 1, 2, 8), torch.ones(1, 1, keys, 8)
    program = torch.export.export(Attention(), (q, k, k))
    assert not has_undefined_result(program, [q, k, k])
    assert has_undefined_result(program, [q * torch.nan, k, k]) is undefined


def test_float16_attention_is_not_judged_where_queries_overflow():
    given = [torch.randn(1, 2, 5, 8).half() * scale for scale in (300, 300, 1)]
    assert coreai_torch.convert(Attention(), given).verdict.ok


def test_order_of_a_polynomial_out_of_range_is_undefined():
    class Polynomial(nn.Module):
        def forward(self, n):
            return torch.special.chebyshev_polynomial_t(0.5, n)

    program = torch.export.export(Polynomial(), (torch.ones(2),))
    assert not has_undefined_result(program, [torch.tensor([2.0, 3.0])])
    assert has_undefined_result(program, [torch.tensor([2.0, -torch.inf])])
