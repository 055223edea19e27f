"""State: mutated buffers and arguments, which the runtime keeps between calls."""

from __future__ import annotations

import pytest
import runtime
import torch
from staging import converted, exported
from torch import nn

from coreai_torch import TorchConverter
from coreai_torch.ir.types import narrow


class KVCache(nn.Module):
    """The stateful model of the reference documentation."""

    def __init__(self):
        super().__init__()
        self.register_buffer("kv_cache", torch.zeros(1, 4))
        self.register_buffer("pos_idx", torch.zeros(1))

    def forward(self, x, y, z):
        self.kv_cache.add_(x)
        self.pos_idx.add_(1)
        y.mul_(2)
        return self.kv_cache + y, z * 3


def cache_inputs():
    return tuple(torch.full((1, 4), float(i)) for i in (1, 2, 3))


def test_states_are_buffers_then_arguments():
    desc = runtime.descriptor(converted(KVCache(), *cache_inputs()))
    assert desc.state_names == ["b_kv_cache", "b_pos_idx", "y"]
    assert desc.input_names == ["x", "z"]


@pytest.mark.parametrize("optimized", [False, True])
def test_states_change_from_call_to_call(optimized):
    program = converted(
        KVCache(),
        *cache_inputs(),
        state_names=["kv_cache", "pos_idx", "y_state"],
        input_names=["query", "context"],
        output_names=["attn_out", "scaled"],
    )
    if optimized:
        program.optimize()
    desc = runtime.descriptor(program)
    assert desc.state_names == ["kv_cache", "pos_idx", "y_state"]
    assert (desc.input_names, desc.output_names) == (["query", "context"], ["attn_out", "scaled"])
    model, (x, y, z) = KVCache(), cache_inputs()
    states = {"kv_cache": torch.zeros(1, 4), "pos_idx": torch.zeros(1), "y_state": y.clone()}
    outputs, after = runtime.run_steps(program, [{"query": x, "context": z}] * 3, states)
    for _ in range(3):
        want = model(x, y, z)
    torch.testing.assert_close(list(outputs.values()), list(want))
    torch.testing.assert_close(after["kv_cache"], model.kv_cache)
    torch.testing.assert_close(after["pos_idx"], model.pos_idx)
    torch.testing.assert_close(after["y_state"], y)


def test_mutated_clone_is_not_a_state():
    class Cloning(nn.Module):
        def forward(self, x):
            local = x.clone()
            local.mul_(2)
            return local

    desc = runtime.descriptor(converted(Cloning(), torch.ones(2)))
    assert (desc.input_names, desc.state_names) == (["x"], [])


class Writes(nn.Module):
    """Write a buffer with one kind of mutation."""

    def __init__(self, write, dtype=torch.float32):
        super().__init__()
        self.register_buffer("cache", torch.arange(24).reshape(2, 3, 4).to(dtype))
        self.write = write

    def forward(self, x, pos):
        return self.write(self.cache, x, pos)


def _last_position(cache, x, pos):
    cache[:, :, pos] = x[:, :, None]
    return cache[1].clone()


def _index_copy(cache, x, pos):
    cache.index_copy_(2, pos, x[:, :, None])
    return cache * 1


def _slice(cache, x, pos):
    cache[:, :, 1:2] = x[:, :, None]
    return cache[0] + 0


def _strided(cache, x, pos):
    cache[:, :, ::2] = x[:, :, None]
    return x + 1


def _twice(cache, x, pos):
    before = cache + 0
    cache[:, :, 0] = x
    middle = cache + 0
    cache[:, 1, :] = 5
    cache.mul_(2)
    return before, middle, cache + 0


def _whole(cache, x, pos):
    old = cache.clone()
    cache.copy_(x[:, :, None].expand(2, 3, 4))
    return old


def _dynamic_slice(cache, x, pos):
    start = pos.item()
    torch._check(start >= 0)
    torch._check(start + 1 <= 4)
    cache.narrow(2, start, 1).copy_(x[:, :, None])
    return x * 2


WRITES = [_last_position, _index_copy, _slice, _strided, _twice, _whole, _dynamic_slice]
DTYPES = [torch.float32, torch.float16, torch.int32, torch.int64, torch.bool]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("write", WRITES, ids=lambda w: w.__name__.strip("_"))
def test_every_kind_of_mutation(write, dtype):
    if dtype == torch.bool and write is _twice:
        write = _whole  # booleans cannot be multiplied in place
    x = (torch.arange(6).reshape(2, 3) + 100).to(dtype)
    pos = torch.tensor([2])
    program = converted(Writes(write, dtype), x, pos)
    for optimized in (False, True):
        if optimized:
            program.optimize()
        model = Writes(write, dtype)
        outputs, after = runtime.run_with_state(
            program, {"x": x, "pos": pos}, {"b_cache": model.cache}
        )
        want = model(x, pos)
        for got, expected in zip(
            outputs.values(), want if isinstance(want, tuple) else [want], strict=True
        ):
            expected = expected.to(narrow(expected.dtype))
            torch.testing.assert_close(got, expected)
        final = model.cache.to(narrow(dtype))
        torch.testing.assert_close(after["b_cache"], final)


def test_swapped_states():
    class Swap(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.ones(2))

        def forward(self, x):
            saved = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(saved)
            return x + self.a

    program = converted(Swap(), torch.zeros(2))
    states = {"b_a": torch.tensor([1.0, 2.0]), "b_b": torch.tensor([3.0, 4.0])}
    outputs, after = runtime.run_with_state(program, {"x": torch.zeros(2)}, states)
    assert after["b_a"].tolist() == [3.0, 4.0]
    assert after["b_b"].tolist() == [1.0, 2.0]
    assert next(iter(outputs.values())).tolist() == [3.0, 4.0]


class Decoder(nn.Module):
    """Prefill writes many positions, decode one; both use the same cache."""

    def __init__(self):
        super().__init__()
        self.proj = nn.Linear(8, 8)
        self.register_buffer("cache", torch.zeros(1, 16, 8))

    def forward(self, x, pos):
        self.cache.index_copy_(1, pos, self.proj(x))
        return self.cache.sum(1)


def test_prefill_and_decode_share_state_and_weights(tmp_path):
    torch.manual_seed(0)
    model = Decoder().eval()
    prefill = exported(model, torch.randn(1, 5, 8), torch.arange(5))
    decode = exported(model, torch.randn(1, 1, 8), torch.tensor([5]))
    program = (
        TorchConverter()
        .add_exported_program(prefill, state_names=["cache"], entrypoint_name="prefill")
        .add_exported_program(decode, state_names=["cache"], entrypoint_name="decode")
        .to_coreai()
    )
    program.optimize()
    long, short = torch.randn(1, 5, 8), torch.randn(1, 1, 8)
    feeds = {"x": long, "pos": torch.arange(5)}
    cache = torch.zeros(1, 16, 8)
    _, after = runtime.run_with_state(program, feeds, {"cache": cache}, "prefill")
    feeds = {"x": short, "pos": torch.tensor([5])}
    outputs, after = runtime.run_with_state(program, feeds, after, "decode")
    model(long, torch.arange(5))
    want = model(short, torch.tensor([5]))
    torch.testing.assert_close(next(iter(outputs.values())), want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(after["cache"], model.cache, rtol=1e-5, atol=1e-5)
