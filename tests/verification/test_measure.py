"""The error figures of a comparison of two tensors."""

from __future__ import annotations

import math

import pytest
import torch

from coreai_torch.numerics.compare import Allowed, compare, is_close, largest, max_error, mismatches
from coreai_torch.numerics.tolerance import BASE, Tolerance, graph_limits, limits

NAN, INF = math.nan, math.inf
LIMITS = limits()


def error(got, want, dtype=torch.float32):
    got, want = (torch.tensor(v, dtype=dtype) for v in (got, want))
    return compare("y", got, want, LIMITS)


def test_equal_tensors_have_no_error():
    same = error([1.0, -2.0], [1.0, -2.0])
    assert same.ok
    assert (same.max_abs, same.max_rel, same.psnr) == (0, 0, INF)
    assert same.cosine == pytest.approx(1)


def test_the_worst_element_is_reported_with_both_values():
    off = error([1.0, 2.0, 3.5], [1.0, 2.0, 3.0])
    assert not off.ok
    assert (off.worst_index, off.got, off.want) == ((2,), 3.5, 3.0)
    assert (off.max_abs, off.mean_abs) == (0.5, pytest.approx(0.5 / 3))
    assert off.max_rel == pytest.approx(0.5 / 3)
    assert "at [2]: got 3.5, want 3.0" in str(off)


@pytest.mark.parametrize(
    ("got", "want", "nan", "inf"),
    [
        ([NAN, 1.0], [NAN, 1.0], True, True),
        ([0.0, 1.0], [NAN, 1.0], False, True),
        ([NAN, 1.0], [0.0, 1.0], False, True),
        ([INF, 1.0], [INF, 1.0], True, True),
        ([-INF, 1.0], [INF, 1.0], True, False),
        ([3e38, 1.0], [INF, 1.0], True, False),
    ],
    ids=["both nan", "only torch nan", "only program nan", "both inf", "other sign", "finite"],
)
def test_nan_and_infinity_must_be_at_the_same_positions(got, want, nan, inf):
    found = error(got, want)
    assert (found.nan_agrees, found.inf_agrees) == (nan, inf)
    assert found.ok is (nan and inf)
    if not found.ok:
        assert found.worst_index == (0,)


@pytest.mark.parametrize(
    ("dtype", "off"), [(torch.float32, 4e-5), (torch.float16, 4e-3), (torch.bfloat16, 4e-2)]
)
def test_the_tolerance_depends_on_the_dtype(dtype, off):
    assert not error([1 + off], [1.0], dtype).ok
    assert error([1 + off / 8], [1.0], dtype).ok


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.uint8])
def test_integers_and_booleans_are_exact(dtype):
    assert error([1, 0], [1, 0], dtype).ok
    assert not error([1, 1], [1, 0], dtype).ok


def test_64_bits_are_narrowed_before_comparing():
    assert compare("y", torch.tensor([1], dtype=torch.int32), torch.tensor([1]), {}).ok


def test_different_shapes_and_dtypes_are_problems():
    found = compare("y", torch.zeros(2), torch.zeros(3), LIMITS)
    assert (found.ok, found.problem) == (False, "is [2] float32, torch gives [3] float32")
    assert "int32" in compare("y", torch.zeros(2).int(), torch.zeros(2), LIMITS).problem


def test_argmax_agreement_is_a_share_of_rows():
    found = error([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]])
    assert found.argmax_agreement == 0.5
    assert error([1.0], [1.0]).argmax_agreement is None


def test_psnr_is_in_decibels():
    assert error([1.1, -1.0], [1.0, -1.0]).psnr == pytest.approx(20 * math.log10(1 / 0.0707), 1e-3)


def test_complex_and_zero_size_tensors():
    assert error([1 + 1j], [1 + 1j], torch.complex64).ok
    assert not error([1 + 1j], [1 - 1j], torch.complex64).ok
    assert compare("y", torch.zeros(0), torch.zeros(0), LIMITS).ok


class Deep(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = torch.sin(x)
        return x, x.half().float()


def test_graph_limits_grow_with_depth_and_the_narrowest_dtype():
    program = torch.export.export(Deep(), (torch.ones(2),))
    limits = graph_limits(program.graph)
    assert limits[torch.float32] == pytest.approx(1e-3 * math.sqrt(102), rel=0.02)


@pytest.mark.parametrize(
    ("values", "want"),
    [([True, False], 1.0), ([-3, 2], 3.0), ([3 + 4j], 5.0), ([INF, 2.0, NAN], 2.0), ([], 0.0)],
    ids=["bool", "int", "complex", "infinite", "none"],
)
def test_largest_works_for_any_dtype(values, want):
    assert largest(torch.tensor(values)) == want


def test_limits_hold_for_each_element_not_for_the_largest():
    got, want = torch.tensor([1e6, 0.0]), torch.tensor([1e6, 0.01])
    assert compare("y", got, want, LIMITS).ok, "a table is relative to the largest value"
    assert not compare("y", got, want, Allowed(torch.tensor([1.0, 1e-6]))).ok


def test_ties_may_differ_and_are_counted():
    got, want = torch.tensor([1, 0, 5]), torch.tensor([0, 1, 5])
    tied = Allowed(torch.zeros(3), torch.tensor([True, True, False]))
    found = compare("y", got.int(), want, tied)
    assert (found.ok, found.ties) == (True, 2)
    assert "2 elements tied" in str(found)
    assert not compare("y", torch.tensor([0, 1, 6]).int(), want, tied).ok


def test_nan_on_both_sides_is_counted_as_not_compared():
    found = error([NAN, 1.0], [NAN, 1.0])
    assert (found.not_compared, found.compared) == (1, True)
    assert not error([NAN], [NAN]).compared


def test_overrides_replace_single_rows_of_the_table():
    changed = limits({torch.bfloat16: Tolerance(0.5, "for this test")})
    assert changed.pop(torch.bfloat16) == 0.5
    assert changed.items() <= limits().items()
    assert all(row.reason for row in BASE.values())


def test_mismatches_marks_nan_infinity_and_errors_above_the_limit():
    got = torch.tensor([NAN, NAN, INF, INF, 1.0, 1.1])
    want = torch.tensor([NAN, 1.0, INF, -INF, 1.0, 1.0])
    marked = mismatches(got, want, limit=0.01, scale=1.0)
    assert marked.tolist() == [False, True, False, True, False, True]
    assert mismatches(torch.tensor([3]), torch.tensor([4]), 1.0, 1.0).all(), "integers are exact"


def test_max_error_ignores_equal_infinities_and_nan():
    got, want = torch.tensor([INF, NAN, 1.5]), torch.tensor([INF, NAN, 1.0])
    assert max_error(got, want) == 0.5
    assert max_error(torch.zeros(0), torch.zeros(0)) == 0.0
    assert is_close(got, want, rtol=0, atol=0.5)
    assert not is_close(got, want, rtol=0, atol=0.4)


def test_a_scaled_result_has_another_norm():
    halved = error([0.5, -1.0], [1.0, -2.0])
    assert halved.cosine == pytest.approx(1)
    assert halved.norm_ratio == pytest.approx(0.5)
    assert "), norm ratio 0.5 at [1]" in str(halved)
    assert error([INF, 3.0], [INF, 2.0]).norm_ratio == 1.5
    assert error([0.0], [0.0]).norm_ratio is None
