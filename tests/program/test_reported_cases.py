"""Small programs that users of converters reported: wrong results, rejections or crashes.

Each runs before and after `optimize`. Reports about a single op are cases of its lowering.
"""

from __future__ import annotations

import pytest
import runtime
import torch
from staging import converted, exported
from torch import nn
from torch.nn import functional as F

from coreai_torch import TorchConverter
from coreai_torch.ir.types import narrow
from coreai_torch.numerics.tolerance import limits

INF, NAN = float("inf"), float("nan")
TOLERANCES = limits()


class Call(nn.Module):
    def __init__(self, fn, **buffers):
        super().__init__()
        self.fn = fn
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, *args):
        return self.fn(self, *args)


def drawn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def squared_distances(m, a, b):
    inner = a @ b.transpose(1, 2)
    return (a * a).sum(-1)[:, :, None] - 2 * inner + (b * b).sum(-1)[:, None, :]


def turned_by_complex_numbers(m, x, angles):
    pairs = torch.view_as_complex(x.unflatten(-1, (-1, 2)))
    turned = pairs * torch.polar(torch.ones_like(angles), angles) * m.more
    return torch.view_as_real(turned).flatten(-2)


def stft_and_back(m, x):
    spectrum = torch.stft(x, 16, 4, window=m.window, return_complex=True)
    return torch.istft(spectrum, 16, 4, window=m.window, length=64), spectrum.abs()


def whole_numbers(m, x):
    return x.floor(), x.ceil(), x.trunc(), x.round(), torch.div(x, 1, rounding_mode="floor")


STEEP = torch.tensor([-50.0, -10.4, -1, 0, 1, 10.4, 50], dtype=torch.float16)
INTEGERS = torch.arange(12).reshape(3, 4)
EXTREMES = torch.tensor([[2**31 - 1, 2**31 - 1], [-(2**31), 5], [-(2**31), -(2**31)]]).int()
NO_MASK = torch.zeros(2, 4, 4)

CASES = {
    "distances of as many points as there are others": (
        Call(squared_distances),
        (drawn(1, 9, 5), drawn(2, 9, 5)[:1]),
    ),
    "a mask of comparisons beside a tensor with other users": (
        Call(lambda m, n, y: (((n > 2) & (n < 9) & (n != 5)).float() * y + y, y * 3, n > 2)),
        (INTEGERS, drawn(3, 4)),
    ),
    "zero-size sections": (
        Call(lambda m, x: (x.split([0, 3, 1], 1)[1], torch.cat([x[:, :0], x], 1))),
        (drawn(2, 4),),
    ),
    "axes that cannot be squeezed": (
        Call(lambda m, x: (x.squeeze(1), x.squeeze(), x.squeeze((0, 1)))),
        (drawn(2, 3, 1),),
    ),
    "steep functions in float16": (
        Call(lambda m, x: (F.softplus(x), F.mish(x), x.logsumexp(0), x.logcumsumexp(0))),
        (STEEP,),
    ),
    "vectors without a length": (
        Call(lambda m, x: (F.normalize(x, dim=-1), F.normalize(x.half(), dim=-1))),
        (torch.cat([torch.zeros(2, 4), drawn(1, 4)]),),
    ),
    "positions as complex numbers, of double width among them": (
        Call(turned_by_complex_numbers, more=torch.polar(torch.ones(4), drawn(4)).cdouble()),
        (drawn(2, 5, 8), drawn(5, 4)),
    ),
    "a spectrum and back": (Call(stft_and_back, window=torch.hann_window(16)), (drawn(2, 64),)),
    "extremes of extremes": (
        Call(lambda m, n: (*n.min(1), *n.max(1), n.argmin(1), n.argmax(1))),
        (EXTREMES,),
    ),
    "extremes of infinities": (
        Call(lambda m, x: (*x.min(1), x.argmax(1))),
        (torch.tensor([[INF, INF], [-INF, 5], [1, NAN]]),),
    ),
    "a mask that masks nothing": (
        Call(lambda m, x: (x + m.mask.masked_fill(m.mask != 0, -100.0)).softmax(-1), mask=NO_MASK),
        (drawn(2, 4, 4),),
    ),
    "sines of large constants": (
        Call(lambda m, x: x + m.at.sin() + m.at.cos(), at=torch.tensor([1e5, 12345.678, 3e6])),
        (drawn(3),),
    ),
    "whole numbers of halves": (
        Call(whole_numbers),
        (torch.tensor([2.5, -0.5, 3.5, 0.49, -1.5]).half(),),
    ),
    "whole numbers of what has none": (
        Call(whole_numbers),
        (torch.tensor([NAN, 1e30, -1e30]),),
    ),
    "a range of fractions": (Call(lambda m, x: x + torch.arange(0, 1, 0.25)), (drawn(4),)),
    "flags and wide integers": (
        Call(lambda m, a, n: (~a, n + 1, n > 2, a.float(), a.sum())),
        (torch.tensor([True, False]), torch.tensor([1, 5])),
    ),
    "integers divided": (Call(lambda m, n: (n / 2, n // 2, n % -3)), (torch.tensor([1, -3, 7]),)),
}


def check(program, model, args):
    with torch.no_grad():
        want = model(*args)
    got = runtime.run(program, {f"args_{i}": value for i, value in enumerate(args)})
    for value, expected in zip(
        got.values(), want if isinstance(want, tuple) else [want], strict=True
    ):
        expected = expected.to(narrow(expected.dtype))
        near = TOLERANCES.get(expected.dtype, 0.0)
        torch.testing.assert_close(value, expected, rtol=near, atol=near, equal_nan=True)


@pytest.mark.parametrize("name", CASES)
def test_result_equals_torch(name):
    model, args = CASES[name]
    program = converted(model, *args)
    _check_twice(program, model, args)


def test_infinities_are_their_own_whole_numbers_with_exact():
    model, args = Call(whole_numbers), (torch.tensor([INF, -INF, NAN, 1e30]),)
    program = TorchConverter(exact=True).add_exported_program(exported(model, *args))
    _check_twice(program.to_coreai(), model, args)


def _check_twice(program, model, args):
    check(program, model, args)
    program.optimize()
    check(program, model, args)
    assert "x0x" not in str(program)  # a zero-size tensor crashes on GPU and neural engine


def test_single_query_and_dynamic_number_of_keys():
    model = Call(lambda m, q, k: F.scaled_dot_product_attention(q, k, k))
    keys = {2: torch.export.Dim("keys", min=2, max=64)}
    query = drawn(1, 2, 1, 8)
    program = converted(model, query, drawn(1, 2, 5, 8), dynamic_shapes=((None, keys),))
    for count in (5, 9, 64):
        check(program, model, (query, drawn(1, 2, count, 8)))


class Nested(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.m = Nested(depth - 1) if depth else nn.Linear(4, 4)

    def forward(self, x):
        return self.m(x) + 1


def test_locations_in_deep_modules_stay_small(tmp_path):
    sizes = {}
    for depth in (10, 40):
        asset = converted(Nested(depth), drawn(2, 4)).save_asset(tmp_path / f"{depth}.aimodel")
        sizes[depth] = (asset.path / "main.mlirb").stat().st_size
    assert sizes[40] < 6 * sizes[10]  # four times the ops; nested locations take 16 times the bytes
