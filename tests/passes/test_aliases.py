"""Writes to tensors that share memory across a boundary are visible, as in eager torch."""

import pytest
import torch
from boundary import Model, assert_agrees, composite_spec, converted
from torch import nn

X = torch.linspace(-2, 3, 18).reshape(3, 6)


class Slice(nn.Module):
    def forward(self, x):
        return x[:, :2]


class Bump(nn.Module):
    def forward(self, x, y):
        x.add_(1)
        return y * 2


def writes_to_a_returned_view(m, x):
    x = x + 0
    m.slice(x).zero_()
    return x


def reads_a_view_after_a_write(m, x):
    x = x + 0
    view = m.slice(x)
    x.mul_(3)
    return view + 1


def passes_one_tensor_twice_and_writes(m, x):
    x = x + 0
    return m.bump(x, x), x


def passes_two_views_and_writes(m, x):
    x = x + 0
    return m.bump(x[0], x[:, 0]), x


def writes_to_its_own_result(m, x):
    y = m.slice(x * 2)
    y.add_(1)
    return y, m.bump(y, y)


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
@pytest.mark.parametrize(
    "forward",
    [
        writes_to_a_returned_view,
        reads_a_view_after_a_write,
        passes_one_tensor_twice_and_writes,
        passes_two_views_and_writes,
        writes_to_its_own_result,
    ],
)
def test_writes_to_shared_memory_are_visible(forward, strict):
    model = Model(forward, slice=Slice(), bump=Bump())
    program = converted(
        model, X, modules=[composite_spec(Slice), composite_spec(Bump)], strict=strict
    )
    assert_agrees(program, model, (X,))
