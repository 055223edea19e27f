"""Caches are written in place: no write gathers, transposes or blends the whole buffer."""

from __future__ import annotations

import pytest
import runtime
import torch

import coreai_torch

HEADS, LENGTH, WIDTH = 2, 8, 4
DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.int32, torch.int8]


class Cache(torch.nn.Module):
    def __init__(self, dtype, batch=1):
        super().__init__()
        self.register_buffer("cache", torch.zeros(batch, HEADS, LENGTH, WIDTH, dtype=dtype))


class ByIndex(Cache):
    def forward(self, x, pos):
        self.cache[:, :, pos] = x
        return self.cache * 1


class ByIndexCopy(Cache):
    def forward(self, x, pos):
        self.cache.index_copy_(2, pos, x)
        return self.cache * 1


class BySlice(Cache):
    def forward(self, x, pos):
        start = pos.item()
        torch._check(start >= 0)
        torch._check(start + x.shape[2] <= LENGTH)
        self.cache[:, :, start : start + x.shape[2]] = x
        return self.cache * 1


class BySelect(Cache):
    def forward(self, x, pos):
        start = pos.item()
        torch._check(start >= 0)
        torch._check(start < LENGTH)
        self.cache.select(2, start).copy_(x[:, :, 0])
        return self.cache * 1


class PerBatch(Cache):
    def forward(self, x, pos):
        self.cache[torch.arange(x.shape[0]), :, pos] = x
        return self.cache * 1


def _tensor(dtype, *shape):
    return torch.arange(1, 1 + torch.Size(shape).numel()).reshape(shape).to(dtype)


def _steps(model, steps):
    """Compare states and outputs with eager torch after every step."""
    exported = torch.export.export(model, steps[0])
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = (
        coreai_torch.TorchConverter()
        .add_exported_program(exported, input_names=["x", "pos"], state_names=["cache"])
        .to_coreai()
    )
    program.optimize()
    state = {"cache": model.cache.clone()}
    for x, pos in steps:
        want = model(x, pos)
        got, state = runtime.run_with_state(program, {"x": x, "pos": pos}, state)
        (output,) = got.values()
        assert torch.equal(output, want)
        assert torch.equal(state["cache"], model.cache)
    return str(program)


def _lacks(text, *ops):
    return [op for op in ops if f"coreai.{op}" in text] == []


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [ByIndex, ByIndexCopy])
def test_one_position(kind, dtype):
    steps = [(_tensor(dtype, 1, HEADS, 1, WIDTH) + p, torch.tensor([p])) for p in (3, 0, 7)]
    text = _steps(kind(dtype), steps)
    assert "coreai.slice_update" in text
    assert _lacks(text, "gather_nd", "gather_along_axis", "transpose", "scatter_nd")


def test_negative_position():
    steps = [(_tensor(torch.float32, 1, HEADS, 1, WIDTH), torch.tensor([p])) for p in (-1, -8)]
    _steps(ByIndex(torch.float32), steps)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", [ByIndex, ByIndexCopy])
def test_several_positions(kind, dtype):
    steps = [
        (_tensor(dtype, 1, HEADS, 3, WIDTH) + p[0], torch.tensor(p)) for p in ([0, 1, 2], [6, 3, 7])
    ]
    text = _steps(kind(dtype), steps)
    assert "coreai.scatter_nd" in text
    assert _lacks(text, "gather_nd", "gather_along_axis", "transpose")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_range_of_positions(dtype):
    steps = [(_tensor(dtype, 1, HEADS, 2, WIDTH) + p, torch.tensor(p)) for p in (0, 6, 3)]
    text = _steps(BySlice(dtype), steps)
    assert "coreai.slice_update" in text
    assert _lacks(text, "gather_nd", "gather_along_axis", "transpose", "scatter_nd")


def test_selected_position():
    steps = [(_tensor(torch.float16, 1, HEADS, 1, WIDTH) + p, torch.tensor(p)) for p in (0, 7)]
    text = _steps(BySelect(torch.float16), steps)
    assert "coreai.slice_update" in text
    assert _lacks(text, "gather_nd", "gather_along_axis", "transpose", "scatter_nd")


def test_one_position_for_each_batch():
    model = PerBatch(torch.float32, batch=3)
    steps = [(_tensor(torch.float32, 3, HEADS, WIDTH), torch.tensor([p, 2, 7])) for p in (0, -1)]
    text = _steps(model, steps)
    assert "coreai.scatter_nd" in text
    assert _lacks(text, "gather_nd", "gather_along_axis", "transpose")


def test_position_beyond_the_cache_raises():
    x, pos = _tensor(torch.float32, 1, HEADS, 2, WIDTH), torch.tensor([0, 1])
    exported = torch.export.export(ByIndexCopy(torch.float32), (x, pos))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    state = {"b_cache": torch.zeros(1, HEADS, LENGTH, WIDTH)}
    with pytest.raises(RuntimeError, match="out of range"):
        runtime.run(program, {"x": x, "pos": torch.tensor([0, 8])}, state)
