"""Recognition of rotary embeddings: halves and neighbours, all features or the first ones."""

from __future__ import annotations

import re

import pytest
import torch
from compat.programs import composites, externalized
from lazy_import import lazy_import
from passes.recognized import Plain, Several, assert_runs_as, check_recognition, converted
from torch import nn

from coreai_torch import ExternalizeSpec
from coreai_torch.composite_ops import RoPE

cohere = lazy_import("transformers.models.cohere.modeling_cohere")
gpt_oss = lazy_import("transformers.models.gpt_oss.modeling_gpt_oss")
llama = lazy_import("transformers.models.llama.modeling_llama")
llama4 = lazy_import("transformers.models.llama4.modeling_llama4")

SLOW = pytest.mark.slow
FLOATS = [torch.float32, pytest.param(torch.float16, marks=SLOW), torch.bfloat16]
HALF = 4


def drawn(*shape, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0)).to(dtype)


def angles(positions):
    return positions.float().unsqueeze(-1) * 100.0 ** (-torch.arange(HALF) / HALF)


def tables(x, angle, join=lambda a: torch.cat((a, a), -1)):
    """Return cos and sin `[batch, length, width]` in the dtype of the input."""
    wide = join(angle)
    return wide.cos().to(x.dtype), wide.sin().to(x.dtype)


def _turns(a):
    return a.repeat_interleave(2, -1)


def _neighbours(x):
    """Swap neighbours, as timm does."""
    return torch.stack((-x[..., 1::2], x[..., ::2]), -1).reshape(x.shape)


def _llama(m, x, at):
    return llama.apply_rotary_pos_emb(x, x + 1, *tables(x, angles(at)))


def _gpt_oss(m, x, at):
    return gpt_oss._apply_rotary_emb(
        x, *(t.unsqueeze(1) for t in tables(x, angles(at), lambda a: a))
    )


def _cohere(m, x, at):
    return cohere.apply_rotary_pos_emb(x, x + 1, *tables(x, angles(at), _turns))


def _llama4(m, x, at):
    angle = angles(at)
    freqs = torch.polar(torch.ones_like(angle), angle)
    rotated = llama4.apply_rotary_emb(x.transpose(1, 2), x.transpose(1, 2) + 1, freqs)
    return tuple(rotated)


def _timm(m, x, at):
    cos, sin = tables(x, angles(at), _turns)
    return x * cos[:, None] + _neighbours(x) * sin[:, None]


def _diffusers(m, x, at):
    """Rotate in float32 and cast back."""
    cos, sin = (t[:, None] for t in (_turns(angles(at)).cos(), _turns(angles(at)).sin()))
    real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    swapped = torch.stack([-imaginary, real], dim=-1).flatten(3)
    return (x.float() * cos + swapped.float() * sin).to(x.dtype)


def _widened(m, x, at):
    """Rotate in float32 without casting back."""
    cos, sin = angles(at).cos()[:, None], angles(at).sin()[:, None]
    first, second = x.float().chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _joined_neighbours(m, x, at):
    cos, sin = (t[:, None] for t in tables(x, angles(at), lambda a: a))
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack((first * cos - second * sin, first * sin + second * cos), -1).flatten(-2)


def _deepseek(m, x, at):
    """Pair neighbours and store them as halves."""
    cos, sin = (t[:, None] for t in tables(x, angles(at), lambda a: a))
    first, second = x[..., ::2], x[..., 1::2]
    return torch.cat((first * cos - second * sin, second * cos + first * sin), -1)


def _partial(m, x, at):
    wide = torch.cat((x, x.sin()), -1)
    rotated, passed = wide[..., : 2 * HALF], wide[..., 2 * HALF :]
    cos, sin = (t[:, None] for t in tables(x, angles(at)))
    return torch.cat((rotated * cos + llama.rotate_half(rotated) * sin, passed), -1)


def _partial_interleaved(m, x, at):
    wide = torch.cat((x, x.sin()), -1)
    rotated, passed = wide[..., : 2 * HALF], wide[..., 2 * HALF :]
    cos, sin = (t[:, None] for t in tables(x, angles(at), _turns))
    return torch.cat((rotated * cos + _neighbours(rotated) * sin, passed), -1)


def _shared_by_batch(m, x, at):
    """Use tables `[length, width]`, and `[length, 1, width]` with heads before features."""
    cos, sin = tables(x, angles(at[0]))
    y = x.transpose(1, 2)
    cos_, sin_ = cos[:, None], sin[:, None]
    return (
        x * cos + llama.rotate_half(x) * sin,
        y * cos_ + llama.rotate_half(y) * sin_,
    )


MODELS = {
    "llama": (_llama, 2, {}),
    "gpt_oss": (_gpt_oss, 1, {}),
    "cohere": (_cohere, 2, {"interleaved": True}),
    "llama4": (_llama4, 2, {"interleaved": True}),
    "timm": (_timm, 1, {"interleaved": True}),
    "diffusers": (_diffusers, 1, {"interleaved": True}),
    "widened": (_widened, 1, {}),
    "joined_neighbours": (_joined_neighbours, 1, {"interleaved": True}),
    "deepseek": (_deepseek, 1, {}),
    "partial": (_partial, 1, {"dims": 2 * HALF}),
    "partial_interleaved": (_partial_interleaved, 1, {"interleaved": True, "dims": 2 * HALF}),
    "shared_by_batch": (_shared_by_batch, 2, {}),
}
AT = torch.tensor([[3, 4, 5, 6, 7], [0, 1, 2, 3, 4]])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_form_is_recognized_as_rotation(dtype):
    model = Several({name: Plain(function) for name, (function, _, _) in MODELS.items()})
    report = check_recognition(model, drawn(2, 3, 5, 2 * HALF, dtype=dtype), AT)
    assert not report.missed
    found = [row.path.removeprefix("models.") for row in report.found]
    assert {name: found.count(name) for name in MODELS} == {
        name: count for name, (_, count, _) in MODELS.items()
    }


_FAST = ("llama", "partial_interleaved")


@pytest.mark.parametrize("name", [n if n in _FAST else pytest.param(n, marks=SLOW) for n in MODELS])
def test_rotation_with_dynamic_batch_and_length_runs(name):
    function, count, attrs = MODELS[name]
    model = Plain(function)
    batch, length = torch.export.Dim("batch", max=64), torch.export.Dim("length", max=64)
    sizes = ({0: batch, 2: length}, {0: batch, 1: length})
    x = drawn(2, 3, 5, 2 * HALF)
    program, report = converted(model, x, AT, dynamic_shapes=(sizes,))
    assert report.counts == {"rope": count}
    graphs = composites(program, "rope")
    assert {graph.attrs.get("interleaved") for graph in graphs} == {
        "true" if attrs.get("interleaved") else "false"
    }
    assert {graph.attrs.get("dims") for graph in graphs} == {
        f"{attrs['dims']} : si64" if "dims" in attrs else None
    }
    assert_runs_as(program, model, (x, AT), (drawn(3, 3, 2, 2 * HALF), torch.tensor([[9, 8]] * 3)))


@pytest.mark.parametrize("dtype", FLOATS[1:], ids=str)
def test_rotation_in_half_precision_runs(dtype):
    model = Several({name: Plain(MODELS[name][0]) for name in ("llama", "diffusers", "widened")})
    x = drawn(2, 3, 5, 2 * HALF, dtype=dtype)
    program, report = converted(model, x, AT)
    assert report.counts == {"rope": 4}
    assert_runs_as(program, model, (x, AT))


class _Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.rope = RoPE()

    def forward(self, x, at):
        cos, sin = (t[:, None] for t in tables(x, angles(at)))
        return self.rope(x, cos, sin)


def test_composite_equals_the_module():
    x = drawn(2, 3, 5, 2 * HALF)
    theirs, _ = converted(Plain(lambda m, x, at: _llama(m, x, at)[0]), x, AT)
    attrs = ["scale", "base", "dims", "interleaved", "version"]
    ours = externalized(_Module(), x, AT, modules=[ExternalizeSpec(RoPE, "rope", attrs)])
    (mine,), (wanted,) = composites(theirs, "rope"), composites(ours, "rope")
    assert (mine.inputs, mine.outputs, mine.attrs) == (wanted.inputs, wanted.outputs, wanted.attrs)


def _other_features(m, x, at):
    cos, sin = (t[:, None] for t in tables(x, angles(at)))
    return x.sin() * cos + llama.rotate_half(x) * sin


def _subtracted(m, x, at):
    cos, sin = (t[:, None] for t in tables(x, angles(at)))
    return x * cos - llama.rotate_half(x) * sin


def _two_angles(m, x, at):
    cos, sin = (t[:, None] for t in tables(x, angles(at), lambda a: a))
    first, second = x.chunk(2, -1)
    return torch.cat((first * cos - second * sin, second * cos.sin() + first * sin), -1)


def _read_inside(m, x, at):
    cos, sin = (t[:, None] for t in tables(x, angles(at)))
    product = x * cos
    return product + llama.rotate_half(x) * sin, product


def _wrong_width(m, x, at):
    cos, sin = tables(x, angles(at))
    return x * cos[:, None, :, :1] + llama.rotate_half(x) * sin[:, None, :, :1]


NEAR_MISSES = {
    "other_features": (_other_features, "is added, which is not a product with the same features"),
    "subtracted": (_subtracted, "swaps the pairs, but is not scaled and added to them"),
    "two_angles": (_two_angles, "the two rows turn by different angles, or other features"),
    "read_inside": (_read_inside, "inside of it, is read by the caller"),
    "wrong_width": (_wrong_width, r"cos is \[2, 1, 5, 1\], its last size must be 4 or 8"),
}


def test_near_misses_are_reported_and_unchanged():
    model = Several({name: Plain(function) for name, (function, _) in NEAR_MISSES.items()})
    report = check_recognition(model, drawn(2, 3, 5, 2 * HALF), AT)
    assert report.counts == {}
    reasons = {row.path.removeprefix("models."): row.why for row in report.missed}
    assert reasons.keys() == NEAR_MISSES.keys()
    for name, (_, reason) in NEAR_MISSES.items():
        assert re.search(reason, reasons[name])
