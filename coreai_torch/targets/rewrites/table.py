"""The rewrites, one row each, in the order in which they are applied."""

from __future__ import annotations

from . import (
    attention,
    broadcasts,
    cast_round_trips,
    masks,
    ordering,
    products,
    rank,
    rounding,
    transposed_convolution,
    writes,
)
from .rewrite import Rewrite

_ALL = ("cpu", "gpu", "neural_engine")

REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "HAZ37",
        ("gpu", "neural_engine"),
        "attention with different head sizes becomes plain ops",
        attention.with_equal_heads,
    ),
    Rewrite(
        "HAZ38",
        ("gpu",),
        "attention with wide heads becomes plain ops",
        attention.without_wide_heads,
    ),
    Rewrite(
        "HAZ36",
        ("gpu",),
        "attention gets a mask of zeros; causal attention becomes plain ops",
        attention.with_mask,
    ),
    Rewrite(
        "HAZ31",
        ("neural_engine",),
        "probabilities of values below 512 are multiplied by 64, the product by 1/64",
        products.scaled_attention,
    ),
    Rewrite("HAZ06", ("neural_engine",), "sort and argmax in float32", ordering.in_float32),
    Rewrite(
        "HAZ15",
        ("neural_engine",),
        "argmax becomes the smallest position that has the maximum",
        ordering.without_argmax,
    ),
    Rewrite("HAZ12", _ALL, "floats are truncated before the cast", cast_round_trips.apply),
    Rewrite("HAZ11", ("gpu",), "rounding by floor division by 2", rounding.apply),
    Rewrite(
        "HAZ14",
        ("gpu", "neural_engine"),
        "masks of integer comparisons are combined as numbers",
        masks.combined_integers,
    ),
    Rewrite("HAZ13", ("cpu",), "masks are combined as numbers", masks.combined),
    Rewrite(
        "HAZ16",
        ("neural_engine",),
        "the product before hardswish has rank 4",
        products.before_hardswish,
    ),
    Rewrite("HAZ18", _ALL, "squares are added in float32", products.wide_squares),
    Rewrite(
        "HAZ20",
        ("cpu",),
        "a convolution of the input with zeros in between",
        transposed_convolution.apply,
    ),
    Rewrite(
        "HAZ23",
        ("neural_engine",),
        "one of two dequantized factors is clamped to the range of its dtype",
        broadcasts.separated_factors,
    ),
    Rewrite("HAZ26", _ALL, "both operands are expanded before the sum", broadcasts.expanded_sum),
    Rewrite("HAZ30", ("cpu",), "indices are clamped to the axis", writes.clamped_scatter),
    Rewrite(
        "HAZ35",
        ("gpu", "neural_engine"),
        "new and old elements are selected by position",
        writes.blended,
    ),
    Rewrite("HAZ07", ("neural_engine",), "neighboring axes are merged", rank.apply),
)
