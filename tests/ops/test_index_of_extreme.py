"""Indices of extremes along long axes, which the form for Linux searches by blocks."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

_INF, _NAN = float("inf"), float("nan")
targets = pytest.mark.parametrize("target", [None, "linux"])
_VALUES = torch.tensor([1.0, 3.0, 3.0, -_INF, _INF, -0.0, 0.0, 2.0, _NAN])


def _special(*shape):
    """Return rows without NaN, with NaN, and with NaN only."""
    torch.manual_seed(0)
    x = _VALUES[torch.randint(0, 9, shape)]
    x[0] = x[0].nan_to_num(2.0, _INF, -_INF)
    x[1] = _NAN
    return x


@targets
@pytest.mark.parametrize(
    ("kind", "shape", "axis"),
    [
        (torch.float32, (4, 80, 15), -2),
        (torch.float16, (5_000, 3), 0),
        (torch.int32, (3, 1_500), 1),
        (torch.bool, (3, 1_500), 1),
    ],
)
def test_extremes_along_a_long_axis(kind, shape, axis, target):
    x = _special(*shape)
    x = (x if kind.is_floating_point else x.nan_to_num(5, 9, -9)).to(kind)
    _check(lambda x: (*x.max(axis), *x.min(axis, keepdim=True)), (x,), target=target)


def _check(function, *calls, **options):
    """Compare with torch; infinities before NaN need `exact`."""
    check(function, *calls, optimized=(True,), exact=True, **options)


@targets
def test_extremes_of_all_elements(target):
    _check(lambda x: (x.argmax(), x.argmin(keepdim=True)), (_special(70, 90),), target=target)


@targets
def test_nan_and_infinities_in_different_rows_need_no_guards(target):
    x = _special(4, 90, 80)
    x[:2] = x[:2].nan_to_num(2.0, 7.0, -7.0)
    x[0, 5, 9] = x[1, 80, 70] = _NAN
    x[2:] = x[2:].nan_to_num(2.0, _INF, -_INF)
    check(lambda x: (*x.flatten(1).max(1), x.argmin(1)), (x,), optimized=(True,), target=target)


@targets
def test_extremes_of_dynamic_rows(target):
    calls = [(_special(count, 80, 3),) for count in (5, 40)]
    shapes = ({0: torch.export.Dim.DYNAMIC},)
    _check(lambda x: (x.argmax(1), *x.min(1)), *calls, dynamic_shapes=shapes, target=target)
