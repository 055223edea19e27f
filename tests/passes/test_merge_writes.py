"""Writes to parts of a tensor are lowered together."""

from __future__ import annotations

import pytest
import runtime
import torch
from pass_graphs import pass_graph, targets

import coreai_torch
from coreai_torch.asset import reading
from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants
from coreai_torch.passes.merge_writes import merge_writes


def volume(left, right):
    """Fill a stereo cost volume."""
    result = left.new_zeros(1, 4, 3, 2, 6)
    for shift in range(3):
        result[:, :2, shift, :, shift:] = left[:, :, :, shift:]
        result[:, 2:, shift, :, shift:] = right[:, :, :, : 6 - shift]
    return result


def steps(x, y):
    result = torch.zeros(3, 5, 4)
    for step in range(5):
        x = x * y
        result[:, step] = x
    return result


def interleaved(x):
    result = torch.empty_like(x)
    result[..., ::2], result[..., 1::2] = -x[..., 1::2], x[..., ::2]
    return result


def overlapping(x, y):
    x = x.clone()
    x[1:4] = y
    x[2:6] = 0.5
    x[::3] = 7
    x[-1] = y[0]
    return x, x[2]


def matrices(angle):
    result = torch.zeros(angle.shape[0], 4, 4)
    result[:, 0, 0] = angle
    result[:, 0, 1] = -angle
    result[:, 1, 0] = 2 * angle
    result[:, 2:, 2:] = torch.eye(2)
    result[:, :2, 3] = angle[:, None]
    return result


def covered(x, y):
    x = x.clone()
    x[1] = 3
    x[:] = y
    x[:, 2] = 1
    return x


def read_between(x):
    result = torch.zeros(6, 3)
    result[0] = x
    for step in range(1, 6):
        result[step] = result[step - 1] * 0.5 + x
    return result


def returned_between(x):
    first = torch.zeros(6, 3)
    first[0] = x
    second = first.clone()
    second[1] = x * 2
    return first, second


def integers(x):
    result = torch.zeros(4, 4, dtype=torch.int64)
    result[1:3, 1:3] = x
    result[0] = 5
    result[:, 3] += result[:, 2]
    return result


def flags(x):
    result = torch.zeros(4, 4, dtype=torch.bool)
    result[1, 1:3] = x > 0
    result[2, :2] = True
    return result


def complex_numbers(x):
    result = torch.zeros(4, 4, dtype=torch.complex64)
    result[1, 1:3] = x
    result[0] = x[0]
    return torch.view_as_real(result)


CALLS = (
    (volume, (torch.randn(1, 2, 2, 6), torch.randn(1, 2, 2, 6))),
    (steps, (torch.randn(3, 4), torch.randn(3, 4))),
    (interleaved, (torch.randn(2, 3, 8),)),
    (overlapping, (torch.randn(8, 5), torch.randn(3, 5))),
    (matrices, (torch.randn(5),)),
    (covered, (torch.randn(3, 4), torch.randn(3, 4))),
    (read_between, (torch.randn(3),)),
    (returned_between, (torch.randn(3),)),
    (integers, (torch.randint(0, 9, (2, 2)),)),
    (flags, (torch.randn(2),)),
    (complex_numbers, (torch.randn(2, dtype=torch.complex64),)),
)


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def merged(function, args):
    graph, build = pass_graph(Call(function), *args)
    return merge_writes(fold_constants(dead_code(graph))), build


@pytest.mark.parametrize(("function", "args"), CALLS, ids=[f.__name__ for f, _ in CALLS])
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
def test_merged_writes_give_the_numbers_of_torch(function, args):
    program = coreai_torch.convert(Call(function), args, verify=False)
    names = [port.name for port in reading.read(program).functions["main"].inputs]
    found = runtime.run(program, dict(zip(names, args, strict=True)))
    wanted = function(*args)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for got, want in zip(found.values(), wanted, strict=True):
        torch.testing.assert_close(got.to(want.dtype), want, rtol=0, atol=0)


@pytest.mark.parametrize("function", [volume, steps, interleaved])
def test_a_chain_of_writes_is_one_node(function):
    graph, _build = merged(function, dict(CALLS)[function])
    assert len(graph.replaced) == 1
    assert sum("scatter" in name for name in targets(graph)) == 1
    assert "copy.default" not in targets(graph)


def test_a_result_that_is_read_is_kept():
    graph, _build = merged(returned_between, (torch.randn(3),))
    assert sum("scatter" in name for name in targets(graph)) == 2


def test_a_registered_lowering_sees_its_node():
    graph, _build = pass_graph(
        Call(steps), *CALLS[1][1], is_custom=lambda node: "scatter" in str(node.target)
    )
    assert not merge_writes(fold_constants(dead_code(graph))).replaced


def patch(x, y):
    x = x.clone()
    x[:, 2:4, 3:5] = y
    return x


@pytest.mark.parametrize(
    ("function", "args", "writes"),
    [
        (volume, dict(CALLS)[volume], 0),
        (steps, dict(CALLS)[steps], 0),
        (interleaved, dict(CALLS)[interleaved], 0),
        (patch, (torch.randn(3, 9, 9), torch.randn(3, 2, 2)), 1),
    ],
)
def test_stacked_writes_are_concatenations(function, args, writes):
    program = coreai_torch.convert(Call(function), args, verify=False)
    assert str(program).count("coreai.slice_update") == writes
