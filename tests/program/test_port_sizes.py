"""Dynamic sizes of a program: chosen for timing, checked for calls."""

from __future__ import annotations

import pytest
import torch
from torch.export import Dim

import coreai_torch
from coreai_torch.asset.port_sizes import PortSizes, parse_sizes
from coreai_torch.errors import ConversionError
from coreai_torch.interpreter import to_torch


class Segmenter(torch.nn.Module):
    def forward(self, x, ids, steps):
        return x.mean(1), torch.cat([ids, ids]) + steps


@pytest.fixture(scope="module")
def program():
    h, w = Dim("h", min=32, max=512), Dim("w", min=32, max=512)
    n = Dim("n", min=1, max=9)
    shapes = {"x": {2: h, 3: w}, "ids": {0: n}, "steps": {0: 2 * n}}
    inputs = torch.rand(1, 3, 64, 96), torch.rand(3), torch.rand(6)
    return coreai_torch.convert(Segmenter(), inputs, dynamic_shapes=shapes, verify=False)


def shapes(program, given=None):
    sizes = PortSizes.of(program, "main", given)
    inputs = to_torch(program).functions["main"].inputs
    return {name: sizes.shape(name, type_) for name, type_ in inputs.items()}, str(sizes)


def test_sizes_are_those_of_the_example(program):
    found, text = shapes(program)
    assert found == {"x": [1, 3, 64, 96], "ids": [3], "steps": [6]}
    assert text == "h=64, w=96, n=3"


def test_named_sizes_replace_those_of_the_example(program):
    found, text = shapes(program, {"h": 480, "n": 4})
    assert found == {"x": [1, 3, 480, 96], "ids": [4], "steps": [8]}
    assert text == "h=480, w=96, n=4"


def test_one_number_replaces_all_named_sizes(program):
    named = {axis: ["n", 1, 64, 2] for axis in ("0", "1")}
    assert PortSizes({"x": named}, every=40).shape("x", tensor(-1, -1, 3)) == [40, 40, 3]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"h": 600}, "h=600 is outside the range of 'x': h in 32..512"),
        (8, "h=8 is outside the range of 'x': h in 32..512"),
        ({"height": 64}, r"(?s)no dynamic size is called 'height'.*one of h, n, w"),
    ],
)
def test_sizes_that_the_program_does_not_take_are_rejected(program, given, message):
    with pytest.raises(ConversionError, match=message):
        shapes(program, given)


def test_a_call_outside_the_range_is_rejected(program):
    sizes = PortSizes.of(program, "main")
    sizes.check("x", (1, 3, 32, 512))
    with pytest.raises(ConversionError, match=r"'x' has 31 elements along axis 2.*h in 32..512"):
        sizes.check("x", (1, 3, 31, 64))


def test_a_size_without_a_stored_range_is_1():
    assert PortSizes({}).shape("x", tensor(-1, 3)) == [1, 3]
    assert PortSizes({}, every=7).shape("x", tensor(-1, 3)) == [7, 3]


def tensor(*shape):
    from coreai_torch.asset.reading import Type

    return Type("tensor", shape, "f32")


@pytest.mark.parametrize(
    ("texts", "found"),
    [([], None), (["8"], 8), (["h=4,w=5"], {"h": 4, "w": 5}), (["h=4", "w=5"], {"h": 4, "w": 5})],
)
def test_sizes_are_parsed(texts, found):
    assert parse_sizes(texts) == found


@pytest.mark.parametrize("text", ["h=x", "-3", "h=1=2", "a,b"])
def test_other_texts_are_no_sizes(text):
    with pytest.raises(ConversionError, match="is not a size"):
        parse_sizes([text])
