"""Generated inputs on which torch leaves a result undefined are not compared."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import get_decomp_table
from coreai_torch.verification.undefined_results import undefined_ops


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
    assert bool(undefined_ops(exported(), [torch.tensor([1.0, value])])) is undefined


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
    assert not undefined_ops(program, [x, w, whole])
    assert undefined_ops(program, [x, w, partial])


def test_factor_of_an_indefinite_matrix_is_undefined():
    class Factor(nn.Module):
        def forward(self, x):
            return torch.linalg.cholesky_ex(x).L

    program = torch.export.export(Factor(), (torch.eye(2),))
    assert not undefined_ops(program, [torch.eye(2)])
    assert undefined_ops(program, [-torch.eye(2)])


class InversePermutation(nn.Module):
    def forward(self, x, order):
        places = torch.arange(order.shape[0])
        return x[torch.empty_like(order).scatter(0, order, places)]


def test_uninitialized_memory_that_is_read_is_undefined():
    x, order = torch.randn(6), torch.tensor([5, 0, 4, 1, 3, 2])
    program = torch.export.export(InversePermutation(), (x, order))
    assert not undefined_ops(program, [x, order])
    assert undefined_ops(program, [x, torch.tensor([5, 0, 4, 1, 3, 3])])


def test_model_that_inverts_a_permutation_is_accepted():
    given = torch.randn(6), torch.tensor([5, 0, 4, 1, 3, 2])
    verdict = coreai_torch.verify(InversePermutation(), None, given)
    assert verdict.ok
    # The memory that no index writes may hold numbers that torch itself rejects as indices.
    assert any("undefined" in r or "out of bounds" in r for r in verdict.left_out)


class Attention(nn.Module):
    def forward(self, q, k, v):
        return nn.functional.scaled_dot_product_attention(q, k, v)


@pytest.mark.parametrize(("keys", "undefined"), [(4, True), (16, False)])
def test_attention_that_loses_nan_is_undefined(keys, undefined):
    q, k = torch.ones(1, 1, 2, 8), torch.ones(1, 1, keys, 8)
    program = torch.export.export(Attention(), (q, k, k))
    assert not undefined_ops(program, [q, k, k])
    assert bool(undefined_ops(program, [q * torch.nan, k, k])) is undefined


def test_float16_attention_is_not_judged_where_queries_overflow():
    given = [torch.randn(1, 2, 5, 8).half() * scale for scale in (300, 300, 1)]
    assert coreai_torch.convert(Attention(), given).verdict.ok


def test_order_of_a_polynomial_out_of_range_is_undefined():
    class Polynomial(nn.Module):
        def forward(self, n):
            return torch.special.chebyshev_polynomial_t(0.5, n)

    program = torch.export.export(Polynomial(), (torch.ones(2),))
    assert not undefined_ops(program, [torch.tensor([2.0, 3.0])])
    assert undefined_ops(program, [torch.tensor([2.0, -torch.inf])])


_NEGATIVE_NAN = torch.tensor([-0x400000], dtype=torch.int32).view(torch.float32)


@pytest.mark.parametrize("op", [torch.signbit, lambda x: torch.copysign(torch.ones(1), x)])
def test_the_sign_bit_of_nan_is_undefined(op):
    class Signs(nn.Module):
        def forward(self, x):
            return op(x)

    program = torch.export.export(Signs(), (torch.ones(1),))
    positive = torch.tensor([0x7FC00000], dtype=torch.int32).view(torch.float32)
    assert not undefined_ops(program, [positive])
    assert not undefined_ops(program, [torch.tensor([-0.0])])
    assert undefined_ops(program, [_NEGATIVE_NAN])


def test_a_difference_on_given_inputs_with_an_undefined_result_says_so():
    class Signs(nn.Module):
        def forward(self, x):
            return torch.signbit(x)

    verdict = coreai_torch.verify(Signs(), None, (_NEGATIVE_NAN,))
    assert not verdict.ok
    assert "torch leaves the result of aten.signbit.default undefined" in str(verdict)
