"""One warning lists the float64 arithmetic that loses digits in float32, and nothing else."""

from __future__ import annotations

import math
import warnings

import pytest
import torch

import coreai_torch
from coreai_torch.capture import narrowed_floats
from coreai_torch.errors import NarrowingWarning

SINGLE = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
DOUBLE = torch.tensor([1.7e9 + 0.3, 1.7e9 + 7.7], dtype=torch.float64)


class Model(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function
        self.register_buffer("third", torch.tensor([1 / 3], dtype=torch.float64))
        self.register_buffer("exact", torch.tensor([0.5, 3.25], dtype=torch.float64))

    def forward(self, x):
        return self.function(self, x)


def message_of(function, x):
    """Return the warning, or an empty string."""
    program = torch.export.export(Model(function), (x,))
    program = program.run_decompositions(coreai_torch.get_decomp_table())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        narrowed_floats.warn(program)
    ours = [str(w.message) for w in caught if issubclass(w.category, NarrowingWarning)]
    assert len(ours) <= 1
    return ours[0] if ours else ""


def branches(m, x):
    return torch.cond(x.sum() > 0, lambda y: (y.double() * 0.1).float(), lambda y: y + 1, (x,))


def positions():
    return torch.arange(8, dtype=torch.float64)


AT_RISK = {
    "phase": (
        lambda m, t: torch.sin(2 * math.pi * (t / 86400)).float(),
        DOUBLE,
        ["div", "mul", "sin"],
    ),
    "since": (lambda m, t: (t - 1.7e9).float(), DOUBLE, ["sub"]),
    "lost term": (lambda m, x: (x.double() + 1e-9 - x.double()).float(), SINGLE, ["add", "sub"]),
    "sum": (lambda m, x: x.double().cumsum(0).float(), SINGLE, ["cumsum"]),
    "product": (lambda m, x: (x.double() @ x.double()).float(), SINGLE, ["matmul"]),
    "float64 result": (lambda m, x: x.double() + x.double(), SINGLE, ["add"]),
    "jump": (lambda m, t: t.floor().long(), DOUBLE, ["floor", "_to_copy"]),
    "cast to an integer": (lambda m, t: t.long(), DOUBLE, ["_to_copy"]),
    "comparison": (lambda m, t: t > 1.7e9, DOUBLE, ["gt"]),
    "positions": (lambda m, t: t.argmax(), DOUBLE, ["argmax"]),
    "comparison with a number": (lambda m, x: x.double() > 0.1, SINGLE, ["gt"]),
    "constant": (lambda m, x: (x[0, :1].double() * m.third).float(), SINGLE, ["mul"]),
    "large integer": (lambda m, x: (x.double() - 1700000001).float(), SINGLE, ["sub"]),
    "integers": (lambda m, n: (n.double() / 7).float(), torch.tensor([2**24 + 1]), ["div"]),
    "table times input": (
        lambda m, x: (x.double() * torch.sin(positions()[:4] * 0.1)).float(),
        SINGLE,
        ["mul"],
    ),
    "rounded, then added": (
        lambda m, x: (x.double() * x.double() + x.double()).float(),
        SINGLE,
        ["mul", "add"],
    ),
    "two steps": (lambda m, x: (x.double() * 3 + 1).float(), SINGLE, ["mul", "add"]),
    "branch": (branches, SINGLE, ["mul"]),
    "cast to half": (lambda m, x: (x.double() + x.double()).half(), SINGLE, ["add"]),
}


@pytest.mark.parametrize("name", AT_RISK)
def test_each_operation_is_named_with_its_line(name):
    function, x, ops = AT_RISK[name]
    message = message_of(function, x)
    places = [line for line in message.splitlines() if line.startswith("  at    ")]
    assert [line.partition("aten.")[2].partition(".")[0] for line in places] == ops
    assert all("test_narrowed_floats.py" in line for line in places)
    assert "in float64; the program computes in float32" in message.splitlines()[0]
    assert message.splitlines()[-1].startswith("  try   ")


HARMLESS = {
    "no float64": (lambda m, x: torch.sin(x) * 0.1, SINGLE),
    "a cast that is undone": (lambda m, x: x.double().float(), SINGLE),
    "moves": (lambda m, x: x.double().T.reshape(2, 8).relu().abs().neg().float(), SINGLE),
    "an input that is cast": (lambda m, t: t.float() * 2, DOUBLE),
    "power of two": (lambda m, t: (t * 0.5 / 8).float(), DOUBLE),
    "exact constants": (lambda m, x: x[0, :2] + m.exact.float(), SINGLE),
    "rounded constant": (lambda m, x: x[0, :1] + m.third.float(), SINGLE),
    "one rounded operation": (lambda m, x: (x.double() * x.double()).float(), SINGLE),
    "exact number": (lambda m, x: (x.double() * 255).float(), SINGLE),
    "jump of exact values": (lambda m, x: x.double().floor().long(), SINGLE),
    "comparison of exact values": (lambda m, x: x.double() > 0.5, SINGLE),
    "positions of exact values": (lambda m, x: x.double().argmax(-1), SINGLE),
    "dead": (lambda m, x: (torch.sin(x.double() * 0.1), x + 1)[1], SINGLE),
    "table of constants": (lambda m, x: x * torch.sin(positions() * 0.1)[:4].float(), SINGLE),
    "table of a buffer": (lambda m, x: x * torch.exp(positions() * m.third)[:4].float(), SINGLE),
    "exact table": (lambda m, x: ((x.double() + (positions()[:4] + 0.5)) * 8).float(), SINGLE),
    "rounded, then moved": (lambda m, x: (x.double() * x.double()).T.relu().float(), SINGLE),
    "small integers": (lambda m, n: (n.double() / 7).float(), torch.tensor([3], dtype=torch.int16)),
}


@pytest.mark.parametrize("name", HARMLESS)
def test_operations_that_narrowing_cannot_change_are_not_named(name):
    assert message_of(*HARMLESS[name]) == ""


def test_operations_of_one_line_are_counted():
    def powers(m, x):
        y = x.double()
        for _ in range(3):
            y = torch.tanh(y)
        return y.float()

    message = message_of(powers, SINGLE)
    assert message.startswith("3 operations compute in float64")
    assert ", 3 times" in message


def test_convert_warns_before_the_conversion():
    def angle(m, x):
        return torch.sin(x.double() * 0.1).float()

    with pytest.warns(NarrowingWarning, match=r"aten.sin.default.*test_narrowed_floats.py"):
        coreai_torch.convert(Model(angle), (SINGLE,), verify=False)
