"""Order statistics of long axes."""

from __future__ import annotations

import re

import pytest
import torch
from module_runner import convert, run

_NAN, _INF = float("nan"), float("inf")
_LENGTH = 4_133


def _tensor(kind):
    torch.manual_seed(0)
    if kind == "float":
        return torch.randn(2, _LENGTH) * 10 ** torch.randint(-30, 30, (2, _LENGTH))
    if kind == "special":
        values = torch.tensor([1.0, _NAN, 3.0, -_INF, 3.0, _INF, -0.0, 0.0, 2.0, -2.0])
        return values[torch.randint(0, len(values), (2, _LENGTH))]
    if kind == "constant":
        return torch.full((2, _LENGTH), -2.5)
    if kind == "integer":
        return torch.randint(-(2**31), 2**31 - 1, (2, _LENGTH))
    return torch.randint(0, 255, (2, _LENGTH), dtype=torch.uint8)


_KINDS = ("float", "special", "constant", "integer", "byte")


def _check(function, x, **options):
    values, places = run(convert(function, (x,), **options), (x,))
    want = function(x)[0]
    assert torch.equal(values.to(want.dtype).nan_to_num(7e7), want.nan_to_num(7e7))
    found = torch.gather(x, 1, places.long().reshape(2, -1)).reshape(values.shape)
    assert torch.equal(found.nan_to_num(7e7), want.nan_to_num(7e7))


@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("k", [1, 2_000, _LENGTH])
def test_kthvalue_of_a_long_axis(kind, k):
    _check(lambda x: x.kthvalue(k, 1), _tensor(kind))


@pytest.mark.parametrize("kind", ["float", "special"])
@pytest.mark.parametrize("function", [torch.median, torch.nanmedian])
def test_median_of_a_long_axis(kind, function):
    _check(lambda x: function(x, 1), _tensor(kind))


@pytest.mark.parametrize("function", [torch.median, torch.nanmedian])
def test_median_of_equal_elements_has_the_index_of_torch(function):
    x = torch.tensor([1.0, 2.0, 2.0, _NAN])[torch.randint(0, 4, (2, _LENGTH))]
    x[1] = x[1].nan_to_num(3.0)
    values, places = run(convert(lambda x: function(x, 1), (x,)), (x,))
    want = function(x, 1)
    assert torch.equal(places.long(), want.indices)
    assert torch.equal(values.nan_to_num(7e7), want.values.nan_to_num(7e7))


def test_order_statistics_of_a_dynamic_axis():
    def statistics(x):
        return *x.kthvalue(3, 0), *x.median(0), torch.nanmedian(x)

    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = convert(statistics, (torch.randn(20, 3),), dynamic_shapes=shapes)
    values = torch.tensor([1.0, _NAN, 3.0, -_INF, 3.0, _INF, -0.0, 2.0])
    for count in (3, 4_100):
        x = values[torch.randint(0, 8, (count, 3))]
        smallest, place, median, middle, center = run(program, (x,))
        found = x.gather(0, place.long()[None])[0]
        want = x.kthvalue(3, 0).values, x.median(0).values, torch.nanmedian(x)
        for one, other in zip((smallest, median, center), want, strict=True):
            assert torch.equal(one.nan_to_num(7e7), other.nan_to_num(7e7))
        assert torch.equal(found.nan_to_num(7e7), smallest.nan_to_num(7e7))
        assert torch.equal(middle.long(), x.median(0).indices)


@pytest.mark.parametrize("target", [None, "linux"])
@pytest.mark.parametrize("kind", _KINDS)
@pytest.mark.parametrize("largest", [True, False])
def test_topk_of_a_long_axis(kind, largest, target):
    _check(lambda x: x.topk(30, 1, largest), _tensor(kind), target=target)


@pytest.mark.parametrize("select", [lambda x: x.topk(3, 0), lambda x: x.topk(2, 0, False)])
def test_values_alone_take_one_sort(select):
    x = torch.tensor([1.0, _NAN, 3.0, -_INF, 2.0, _INF])
    program = convert(lambda x: select(x).values, (x,))
    assert torch.equal(run(program, (x,))[0].nan_to_num(9.0), select(x).values.nan_to_num(9.0))
    assert not re.search("argsort|gather", str(program))
