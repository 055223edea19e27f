"""Promises of the seed documents about input, output and state names, and about states."""

import pytest
import torch
from compat.programs import assert_close, converted
from runtime import Descriptor, descriptor, run, run_steps, run_with_state
from torch import nn


class KVCache(nn.Module):
    """The stateful model of the reference page."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kv_cache", torch.zeros(1, 4))
        self.register_buffer("pos_idx", torch.zeros(1))

    def forward(self, x, y, z):
        self.kv_cache.add_(x)
        self.pos_idx.add_(1)
        y.mul_(2)
        return self.kv_cache + y, z * 3


class TwoOfEach(nn.Module):
    """Buffers are registered in reverse order of use, arguments mutated in reverse order."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("second", torch.zeros(2))
        self.register_buffer("fixed", torch.full((2,), 7.0))
        self.register_buffer("first", torch.zeros(2))

    def forward(self, a, m, b, n):
        self.first.add_(a)
        self.second.mul_(2)
        n.sub_(b)
        m.add_(1)
        return b + self.fixed, a - m


class Reader(nn.Module):
    def forward(self, x, z):
        return x + z, x * z


def arguments(count: int, *shape: int) -> list[torch.Tensor]:
    torch.manual_seed(count)
    return [torch.randn(shape) for _ in range(count)]


# Given names -------------------------------------------------------------------------------------


def test_stateless_names_reach_the_runtime():
    program = converted(
        nn.Linear(8, 4), *arguments(1, 1, 8), input_names=["features"], output_names=["logits"]
    )
    assert descriptor(program) == Descriptor(["features"], ["logits"], [])


def test_all_three_lists_reach_the_runtime_in_order():
    program = converted(
        KVCache(),
        *arguments(3, 1, 4),
        state_names=["kv_cache", "pos_idx", "y_state"],
        input_names=["query", "context"],
        output_names=["attn_out", "scaled"],
    )
    assert descriptor(program) == Descriptor(
        ["query", "context"],
        ["attn_out", "scaled"],
        ["kv_cache", "pos_idx", "y_state"],
    )


def test_names_belong_to_the_correct_values():
    program = converted(
        KVCache(),
        *arguments(3, 1, 4),
        state_names=["kv_cache", "pos_idx", "y_state"],
        input_names=["query", "context"],
        output_names=["attn_out", "scaled"],
    )
    x, y, z = arguments(3, 1, 4)
    cache, position = torch.full((1, 4), 0.5), torch.tensor([6.0])
    state = {"kv_cache": cache, "pos_idx": position, "y_state": y}
    outputs, state = run_with_state(program, {"query": x, "context": z}, state)
    assert_close(outputs["attn_out"], cache + x + y * 2)
    assert_close(outputs["scaled"], z * 3)
    # Each state has one name, for its input and its output.
    assert_close(state["kv_cache"], cache + x)
    assert_close(state["pos_idx"], position + 1)
    assert_close(state["y_state"], y * 2)
    assert set(outputs) == {"attn_out", "scaled"}


def test_state_persists_between_calls():
    program = converted(KVCache(), *arguments(3, 1, 4), output_names=["out", "scaled"])
    x, y, z = arguments(3, 1, 4)
    state = {"b_kv_cache": torch.zeros(1, 4), "b_pos_idx": torch.zeros(1), "y": y}
    feeds = {"x": x, "z": z}
    outputs, state = run_steps(program, [feeds, feeds], state)
    assert_close(outputs["out"], x * 2 + y * 4)
    assert_close(state["b_pos_idx"], torch.tensor([2.0]))


# Default names -----------------------------------------------------------------------------------


def test_default_names_are_node_names():
    assert descriptor(converted(Reader(), *arguments(2, 3))) == Descriptor(
        ["x", "z"], ["add", "mul"], []
    )


def test_default_state_names_are_placeholder_names():
    assert descriptor(converted(KVCache(), *arguments(3, 1, 4))) == Descriptor(
        ["x", "z"],
        ["add_2", "mul_1"],
        ["b_kv_cache", "b_pos_idx", "y"],
    )


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"input_names": ["a", "b"]}, Descriptor(["a", "b"], ["add", "mul"], [])),
        ({"output_names": ["s", "p"]}, Descriptor(["x", "z"], ["s", "p"], [])),
    ],
    ids=["inputs", "outputs"],
)
def test_each_list_of_names_is_optional(given, expected):
    assert descriptor(converted(Reader(), *arguments(2, 3), **given)) == expected


def test_state_names_alone():
    program = converted(KVCache(), *arguments(3, 1, 4), state_names=["s", "t", "u"])
    assert descriptor(program).state_names == ["s", "t", "u"]
    assert descriptor(program).input_names == ["x", "z"]


# Order -------------------------------------------------------------------------------------------


def test_order_is_registration_and_signature_order():
    program = converted(TwoOfEach(), *arguments(4, 2))
    names = descriptor(program)
    assert names.state_names == ["b_second", "b_first", "m", "n"]
    assert names.input_names == ["a", "b"]
    a, m, b, n = arguments(4, 2)
    state = {"b_second": torch.ones(2), "b_first": torch.ones(2), "m": m, "n": n}
    outputs, state = run_with_state(program, {"a": a, "b": b}, state)
    first, second = (outputs[name] for name in names.output_names)
    assert_close(first, b + 7)
    assert_close(second, a - (m + 1))
    assert_close(state["b_second"], torch.full((2,), 2.0))
    assert_close(state["b_first"], 1 + a)
    assert_close(state["m"], m + 1)
    assert_close(state["n"], n - b)


def test_given_state_names_follow_that_order():
    program = converted(TwoOfEach(), *arguments(4, 2), state_names=["S", "F", "M", "N"])
    a, m, b, n = arguments(4, 2)
    state = {"S": torch.ones(2), "F": torch.ones(2), "M": m, "N": n}
    _, state = run_with_state(program, {"a": a, "b": b}, state)
    assert_close(state["S"], torch.full((2,), 2.0))
    assert_close(state["N"], n - b)


# States ------------------------------------------------------------------------------------------


class Mutates(nn.Module):
    def forward(self, x):
        x.mul_(2)
        return x + 1


class ClonesFirst(nn.Module):
    def forward(self, x):
        x_local = x.clone()
        x_local.mul_(2)
        return x_local + 1


class OutOfPlace(nn.Module):
    def forward(self, x):
        x_scaled = x * 2
        return x_scaled + 1


def test_argument_mutated_in_place_is_state():
    program = converted(Mutates(), *arguments(1, 3), output_names=["y"])
    assert descriptor(program) == Descriptor([], ["y"], ["x"])
    (x,) = arguments(1, 3)
    outputs, state = run_with_state(program, {}, {"x": x})
    assert_close(outputs["y"], x * 2 + 1)
    assert_close(state["x"], x * 2)


@pytest.mark.parametrize("model", [ClonesFirst, OutOfPlace])
def test_argument_that_is_not_mutated_is_an_input(model):
    program = converted(model(), *arguments(1, 3), output_names=["y"])
    assert descriptor(program) == Descriptor(["x"], ["y"], [])
    (x,) = arguments(1, 3)
    assert_close(run(program, {"x": x})["y"], x * 2 + 1)


class ReadsBuffer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("offset", torch.arange(3.0))

    def forward(self, x):
        return x + self.offset


def test_buffer_that_is_only_read_is_not_state():
    program = converted(ReadsBuffer(), *arguments(1, 3))
    assert descriptor(program) == Descriptor(["x"], ["add"], [])
    (x,) = arguments(1, 3)
    assert_close(run(program, {"x": x})["add"], x + torch.arange(3.0))


# Wrong numbers of names --------------------------------------------------------------------------

WRONG = {
    "too few inputs": ({"input_names": ["query"]}, "input_names", "x"),
    "too many inputs": ({"input_names": ["a", "b", "c"]}, "input_names", "x"),
    "too few outputs": ({"output_names": ["one"]}, "output_names", "mul_1"),
    "too few states": ({"state_names": ["kv_cache", "pos_idx"]}, "state_names", "b_kv_cache"),
    "no states": ({"state_names": []}, "state_names", "b_kv_cache"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_number_of_names_raises(case):
    names, parameter, existing = WRONG[case]
    with pytest.raises(ValueError, match=parameter) as error:
        converted(KVCache(), *arguments(3, 1, 4), **names)
    assert str(len(names[parameter])) in str(error.value)
    assert existing in str(error.value)
    assert all(name in str(error.value) for name in names[parameter])


def test_state_names_of_a_stateless_model_raise():
    with pytest.raises(ValueError, match="state_names"):
        converted(Reader(), *arguments(2, 3), state_names=["s"])
