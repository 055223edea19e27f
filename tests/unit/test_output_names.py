"""Unnamed outputs get names from the structure that the model returns."""

from __future__ import annotations

import collections
from dataclasses import dataclass

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from coreai_torch.capture.io_plan import Names, plan

Pair = collections.namedtuple("Pair", "first second")


@dataclass
class Found:
    boxes: torch.Tensor
    scores: torch.Tensor | None = None
    masks: list[torch.Tensor] | None = None


torch.export.register_dataclass(Found)


class Bag:
    """A pytree node without key names for its children."""

    def __init__(self, things):
        self.things = things


pytree.register_pytree_node(
    Bag,
    lambda bag: (bag.things, None),
    lambda things, _: Bag(list(things)),
    serialized_type_name="Bag",
)

CASES = {
    "tensor": (lambda a, b, c: a, ["add"]),
    "tuple": (lambda a, b, c: (a, (b, c)), ["add", "mul", "sub"]),
    "twice": (lambda a, b, c: (a, a), ["add", "add_1"]),
    "number": (lambda a, b, c: (a, 3), ["add", "output_1"]),
    "dict": (lambda a, b, c: {"p": a, "q": (b, [c, None])}, ["p", "q_0", "q_1_0"]),
    "nested": (lambda a, b, c: {"p": {"q": a}, "r": b}, ["p_q", "r"]),
    "order": (lambda a, b, c: {"z": a, "y": b, "x": 2}, ["z", "y", "x"]),
    "none": (lambda a, b, c: {"p": None, "q": (None, a)}, ["q_1"]),
    "words": (lambda a, b, c: {"a loss": a, "b.c": b}, ["a_loss", "b_c"]),
    "clash": (lambda a, b, c: {"a_0": a, "a": (b, c)}, ["a_0", "a_0_1", "a_1"]),
    "ordered": (lambda a, b, c: collections.OrderedDict(u=a, v=b), ["u", "v"]),
    "named tuple": (lambda a, b, c: Pair(a, {"k": b}), ["first", "second_k"]),
    "dataclass": (lambda a, b, c: Found(a, None, [b, c]), ["boxes", "masks_0", "masks_1"]),
    "tuple of dicts": (
        lambda a, b, c: ({"boxes": a, "labels": b}, {"boxes": c}),
        ["boxes", "labels", "boxes_1"],
    ),
    "half keyed": (lambda a, b, c: (a, {"k": b}), ["add", "k"]),
    "no names": (lambda a, b, c: {"k": Bag([a, b])}, ["add", "mul"]),
}


class Model(nn.Module):
    def __init__(self, wrap):
        super().__init__()
        self.wrap = wrap

    def forward(self, x):
        return self.wrap(x + 1, x * 2, x - 3)


def names(module, given=None):
    exported = torch.export.export(module, (torch.randn(3),)).run_decompositions({})
    return [o.name for o in plan(exported, Names(outputs=given)).outputs]


@pytest.mark.parametrize("kind", CASES)
def test_names_follow_the_structure(kind):
    wrap, expected = CASES[kind]
    assert names(Model(wrap)) == expected


def test_names_of_a_transformers_output_are_its_fields():
    outputs = pytest.importorskip("transformers.modeling_outputs")
    model = Model(lambda a, b, c: outputs.CausalLMOutputWithPast(logits=a, hidden_states=(b, c)))
    assert names(model) == ["logits", "hidden_states_0", "hidden_states_1"]


def test_given_names_come_first():
    assert names(Model(lambda a, b, c: {"p": a, "q": b}), ["x", "y"]) == ["x", "y"]


def test_a_state_keeps_its_name():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("count", torch.zeros(3))

        def forward(self, x):
            self.count.add_(1)
            return {"b_count": x + self.count}

    assert names(Counting()) == ["b_count_1"]
