"""Dynamic sizes: as data, in symbolic arithmetic, with ranges; static sizes stay static."""

from __future__ import annotations

import math

import pytest
import runtime
import torch
from staging import converted
from torch import nn
from torch.export import Dim

from coreai_torch.ir.types import narrow

AUTO = Dim.AUTO


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def check(fn, sample, others, dynamic_shapes=None):
    """Convert with one size, run with others."""
    shapes = dynamic_shapes or tuple(dict.fromkeys(range(t.dim()), AUTO) for t in sample)
    program = converted(Call(fn), *sample, dynamic_shapes=(shapes,))
    for optimized in (False, True):
        if optimized:
            program.optimize()
        names = runtime.descriptor(program).input_names
        for inputs in (sample, *others):
            got = list(runtime.run(program, dict(zip(names, inputs, strict=True))).values())
            want = fn(*inputs)
            for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
                w = torch.as_tensor(w)
                w = w.to(narrow(w.dtype))
                torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)
    return program


def x(*shape):
    return torch.rand(shape) + 0.5


ARITHMETIC = {
    "plus": lambda n: n + 3,
    "minus": lambda n: 2 * n - 1,
    "times": lambda n: n * n,
    "floor": lambda n: n // 2,
    "negative floor": lambda n: -(-n // 4),
    "modulo": lambda n: n % 3,
    "power": lambda n: n**2,
    "minimum": lambda n: torch.sym_min(n, 5),
    "maximum": lambda n: torch.sym_max(n, 5),
    "round half to even": lambda n: round(n * 0.5),
    "round an integer": lambda n: round(n) + 1,
    "round to digits": lambda n: round(n * 0.27, 1),
    "true division": lambda n: n / 2,
    "float": lambda n: torch.sym_float(n) * 0.5,
    "select": lambda n: torch.sym_ite(n > 5, n, n * 2),
    "sum": lambda n: torch.sym_sum([n, n, 1]),
    "ceil of a float": lambda n: math.ceil(n / 2),
    "floor of a float": lambda n: math.floor(n * 0.75),
}


@pytest.mark.parametrize("what", ARITHMETIC)
def test_symbolic_arithmetic(what):
    rule = ARITHMETIC[what]
    check(lambda t: t * rule(t.shape[0]), [x(4, 2)], [[x(7, 2)], [x(9, 2)]])


def test_size_as_data():
    check(lambda t: t + torch.arange(t.shape[1]), [x(2, 4)], [[x(2, 7)]], ({1: Dim("s", min=2)},))


def test_new_tensors_of_dynamic_size():
    check(
        lambda t: (torch.zeros(t.shape[0], 3) + t[:, :1], torch.full((t.shape[0],), 2.0)),
        [x(4, 2)],
        [[x(6, 2)]],
        ({0: AUTO},),
    )


def test_views_of_dynamic_sizes():
    check(
        lambda t: (
            t.reshape(t.shape[0], -1),
            t.flatten(),
            t.reshape(t.shape[0] * t.shape[1], 2, 2),
            t.unsqueeze(1).expand(-1, 3, -1, -1),
            t.transpose(0, 1),
        ),
        [x(3, 5, 4)],
        [[x(2, 7, 4)], [x(6, 3, 4)]],
        ({0: AUTO, 1: AUTO},),
    )


def test_padding_by_dynamic_amounts():
    def padded(x):
        to_multiple = nn.functional.pad(x, (0, (8 - x.shape[1] % 8) % 8), value=-1.5)
        cropped = nn.functional.pad(x, (-(x.shape[1] // 3), x.shape[1]), value=2.0)
        return to_multiple, cropped

    check(padded, (torch.randn(3, 13),), [(torch.randn(3, n),) for n in (16, 7, 100)])


def test_slices_of_dynamic_sizes():
    check(
        lambda t: (t[:, 1:], t[:, : t.shape[1] // 2], t[-1], t[:, -2:], t[::2]),
        [x(4, 6)],
        [[x(5, 9)], [x(7, 4)]],
    )


def test_halves_of_dynamic_sizes():
    check(
        lambda t: (*t.chunk(2, 0), *t.split(t.shape[0] // 2)),
        [x(6, 3)],
        [[x(2, 3)], [x(10, 3)]],
        ({0: 2 * Dim("half", min=1, max=64)},),
    )


def _with_a_column(t):
    written = t.clone()
    written[1:, 0] = t[1:, 1]
    written[:-1, 2].mul_(2)
    return written


def test_slice_assignment_with_dynamic_sizes():
    check(_with_a_column, [x(9, 3)], [[x(3, 3)], [x(12, 3)]], ({0: AUTO},))


def test_broadcasts_between_dynamic_sizes():
    n, m = Dim("n", min=2, max=64), Dim("m", min=2, max=64)
    check(
        lambda a, b: ((a[:, None, :] - b[None, :, :]) ** 2).sum(-1),
        [x(5, 3), x(5, 3)],  # equal sizes: the shape would not reveal a wrong axis
        [[x(4, 3), x(6, 3)]],
        ({0: n}, {0: m}),
    )


def test_matrix_products_of_dynamic_sizes():
    check(
        lambda a, b: a @ b,
        [x(2, 3, 4), x(2, 4, 5)],
        [[x(6, 7, 4), x(6, 4, 3)]],
        ({0: AUTO, 1: AUTO}, {0: AUTO, 2: AUTO}),
    )


def test_static_sizes_stay_static():
    def model(t):
        return torch.relu(t.reshape(t.shape[0], 2, 4).transpose(1, 2) + 1) @ torch.ones(2, 5)

    program = converted(Call(model), x(3, 8), dynamic_shapes=(({0: AUTO},),))
    last = [line for line in str(program).splitlines() if "coreai.output" in line][-1]
    assert "tensor<?x4x5xf32>" in last


def test_symbolic_integer_input():
    class Scaled(nn.Module):
        def forward(self, t, times):
            return t * times + t.shape[0]

    program = converted(Scaled(), x(3), 5, dynamic_shapes=({0: AUTO}, Dim.DYNAMIC))
    desc = runtime.descriptor(program)
    assert desc.input_names == ["t", "times"]
    t = x(4)
    got = runtime.run(program, {"t": t, "times": torch.tensor(7, dtype=torch.int32)})
    torch.testing.assert_close(next(iter(got.values())), t * 7 + 4)


def test_item_as_a_size():
    def first(t, n):
        count = n.item()
        torch._check(count >= 2)
        torch._check(count <= t.shape[0])
        return t[:count] * 2

    check(first, [x(8), torch.tensor(3)], [[x(8), torch.tensor(5)]], ({}, {}))


def test_nonzero_has_a_data_dependent_size():
    def kept(t):
        return torch.nonzero(t > 1.0)

    check(kept, [torch.tensor([0.5, 1.5, 2.0, 0.1])], [[torch.tensor([1.2, 1.5, 2.0, 0.1])]], ({},))


def test_output_size_is_a_rounded_size():
    def resized(x):
        return torch.zeros(round(x.shape[0] * 0.5)) + x.sum()

    size = {0: Dim("n", min=4, max=100)}
    check(resized, (x(8),), [(x(n),) for n in (5, 6, 7, 9, 10, 11)], (size,))
