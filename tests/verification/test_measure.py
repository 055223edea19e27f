"""The figures of a comparison, on tensors that show each of them."""

from __future__ import annotations

import math

import pytest
import torch

from coreai_torch.numerics.compare import compare, largest
from coreai_torch.numerics.tolerance import graph_limits, limits

NAN, INF = math.nan, math.inf
LIMITS = limits()


def error(got, want, dtype=torch.float32):
    got, want = (torch.tensor(v, dtype=dtype) for v in (got, want))
    return compare("y", got, want, LIMITS)


def test_equal_is_exact():
    same = error([1.0, -2.0], [1.0, -2.0])
    assert same.ok
    assert (same.max_abs, same.max_rel, same.psnr) == (0, 0, INF)
    assert same.cosine == pytest.approx(1)


def test_the_worst_place_is_told_with_both_values():
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
    ids=["both", "lost", "made", "both infinite", "other sign", "finite"],
)
def test_nan_and_infinity_agree_or_not(got, want, nan, inf):
    found = error(got, want)
    assert (found.nan_agrees, found.inf_agrees) == (nan, inf)
    assert found.ok is (nan and inf)
    if not found.ok:
        assert found.worst_index == (0,)


@pytest.mark.parametrize(
    ("dtype", "off"), [(torch.float32, 4e-5), (torch.float16, 4e-3), (torch.bfloat16, 4e-2)]
)
def test_the_tolerance_is_of_the_dtype(dtype, off):
    assert not error([1 + off], [1.0], dtype).ok
    assert error([1 + off / 8], [1.0], dtype).ok


@pytest.mark.parametrize("dtype", [torch.int32, torch.bool, torch.uint8])
def test_integers_and_booleans_are_exact(dtype):
    assert error([1, 0], [1, 0], dtype).ok
    assert not error([1, 1], [1, 0], dtype).ok


def test_64_bits_are_narrowed_before_comparing():
    assert compare("y", torch.tensor([1], dtype=torch.int32), torch.tensor([1]), {}).ok


def test_other_shapes_and_dtypes_are_problems():
    found = compare("y", torch.zeros(2), torch.zeros(3), LIMITS)
    assert (found.ok, found.problem) == (False, "is [2] float32, torch gives [3] float32")
    assert "int32" in compare("y", torch.zeros(2).int(), torch.zeros(2), LIMITS).problem


def test_argmax_is_judged_by_rows():
    found = error([[0.0, 1.0], [1.0, 0.0]], [[0.0, 1.0], [0.0, 1.0]])
    assert found.argmax_agreement == 0.5
    assert error([1.0], [1.0]).argmax_agreement is None


def test_psnr_is_in_decibels():
    assert error([1.1, -1.0], [1.0, -1.0]).psnr == pytest.approx(20 * math.log10(1 / 0.0707), 1e-3)


def test_complex_numbers_and_nothing_at_all():
    assert error([1 + 1j], [1 + 1j], torch.complex64).ok
    assert not error([1 + 1j], [1 - 1j], torch.complex64).ok
    assert compare("y", torch.zeros(0), torch.zeros(0), LIMITS).ok


class Deep(torch.nn.Module):
    def forward(self, x):
        for _ in range(100):
            x = torch.sin(x)
        return x, x.half().float()


def test_the_tolerance_of_a_graph_grows_with_its_depth_and_its_narrowest_type():
    program = torch.export.export(Deep(), (torch.ones(2),))
    limits = graph_limits(program.graph)
    assert limits[torch.float32] == pytest.approx(1e-3 * math.sqrt(102), rel=0.02)


@pytest.mark.parametrize(
    ("values", "want"),
    [([True, False], 1.0), ([-3, 2], 3.0), ([3 + 4j], 5.0), ([INF, 2.0, NAN], 2.0), ([], 0.0)],
    ids=["bool", "int", "complex", "infinite", "none"],
)
def test_the_largest_value_of_any_dtype(values, want):
    assert largest(torch.tensor(values)) == want


def test_values_that_are_small_for_once_are_held_to_the_usual_size():
    got, want = torch.tensor([2e-6]), torch.tensor([0.0])
    assert not compare("y", got, want, LIMITS).ok
    assert compare("y", got, want, LIMITS, usual=1.0).ok
