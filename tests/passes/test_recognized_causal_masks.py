"""Masks of positions become attributes of attention; other masks stay operands."""

from __future__ import annotations

import pytest
import torch
from compat.programs import composites
from passes.recognized import Plain, converted
from runtime import run
from torch.nn import functional as F

SDPA = "scaled_dot_product_attention"


def positions(q, k, shift=0):
    """Return the positions of queries and keys as columns and rows of a mask."""
    queries, keys = q.shape[2], k.shape[2]
    at = torch.arange(queries) + (keys - queries) + shift
    return at[None, None, :, None], torch.arange(keys)[None, None, None, :]


def causal(q, k):
    at, keys = positions(q, k)
    return (keys <= at).expand(1, 1, q.shape[2], k.shape[2])


def windowed(q, k):
    at, keys = positions(q, k)
    return torch.ones((), dtype=torch.bool) & (keys > at - 3) & (at >= keys)


def strict(q, k):
    at, keys = positions(q, k, shift=1)
    return keys < at


def later(q, k):
    at, keys = positions(q, k, shift=1)
    return keys <= at


def ahead(q, k):
    at, keys = positions(q, k)
    return (keys <= at) & (keys > at)


def from_start(q, k):
    return torch.arange(k.shape[2])[None] <= torch.arange(q.shape[2])[:, None]


def attend(mask):
    return Plain(lambda m, q, k, v: F.scaled_dot_product_attention(q, k, v, mask(q, k)))


def softmax(mask):
    def forward(m, q, k, v):
        lowest = torch.full([], torch.finfo(q.dtype).min)
        added = torch.where(mask(q, k), torch.zeros([]), lowest)
        return (q @ k.mT * 0.5 + added).softmax(-1) @ v

    return Plain(forward)


def drawn(queries, keys):
    generator = torch.Generator().manual_seed(queries)
    return tuple(torch.randn(1, 2, n, 8, generator=generator) for n in (queries, keys, keys))


def program_of(model, queries=3, keys=5, *, dynamic=True):
    sizes = {2: torch.export.Dim("queries")}, *2 * ({2: torch.export.Dim("keys")},)
    args = drawn(queries, keys)
    return converted(model, *args, dynamic_shapes=(sizes,) if dynamic else None)[0]


def attributes(program):
    (graph,) = composites(program, SDPA)
    is_causal, window = (graph.attrs[name] for name in ("is_causal", "window_size"))
    return graph.inputs, is_causal == "true", int(window.partition(":")[0])


def assert_equal(program, model, *sizes):
    for one in sizes:
        args = drawn(*one)
        (got,) = run(program, dict(zip(["args_0", "args_1", "args_2"], args, strict=True))).values()
        torch.testing.assert_close(got, model(*args), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("form", [attend, softmax])
@pytest.mark.parametrize(("mask", "window"), [(causal, 0), (windowed, 3), (strict, 0)])
def test_a_mask_of_positions_is_an_attribute(form, mask, window):
    program = program_of(form(mask))
    assert attributes(program) == (["query", "key", "value"], True, window)
    assert_equal(program, form(mask), (3, 5), (1, 4), (7, 7))


@pytest.mark.parametrize("mask", [later, ahead, from_start])
def test_other_masks_stay(mask):
    program = program_of(attend(mask))
    assert attributes(program) == (["query", "key", "value", "attn_mask"], False, 0)


def test_queries_before_all_keys_return_zeros():
    program = program_of(attend(causal))
    assert_equal(program, attend(causal), (6, 4))


def test_static_sizes():
    program = program_of(attend(windowed), 4, 4, dynamic=False)
    assert attributes(program) == (["query", "key", "value"], True, 3)
    assert_equal(program, attend(windowed), (4, 4))
