"""The rewrites, one row each, in the order in which they are applied."""

from __future__ import annotations

from . import (
    activations,
    attention,
    broadcasts,
    cast_round_trips,
    constant_products,
    key_blocks,
    layout,
    masks,
    ordering,
    products,
    rank,
    rounding,
    selection,
    transposed_convolution,
    writes,
)
from .rewrite import Rewrite

_ALL = ("cpu", "gpu", "neural_engine")

REWRITES: tuple[Rewrite, ...] = (
    Rewrite(
        "PLACE10",
        ("neural_engine",),
        "-40000 in place of -inf in constant masks that hide not all keys",
        selection.finite_mask,
    ),
    Rewrite(
        "PLACE08",
        ("neural_engine",),
        "attention to blocks of 16,384 keys, and their mean",
        key_blocks.apply,
    ),
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
    # Before HAZ31, whose selections keep infinities and NaN in their rows.
    Rewrite(
        "PLACE01",
        ("neural_engine",),
        "masks of float16 comparisons and their selections as products",
        selection.products,
    ),
    Rewrite(
        "HAZ31",
        ("neural_engine",),
        "probabilities of values below 512 are multiplied by 64, the product by 1/64",
        products.scaled_attention,
    ),
    Rewrite(
        "PLACE02",
        ("gpu", "neural_engine"),
        "products with constant matrices that copy elements",
        constant_products.nearest,
    ),
    Rewrite(
        "PLACE03",
        ("neural_engine",),
        "products with constant matrices that mix neighbors",
        constant_products.linear,
    ),
    Rewrite(
        "PLACE05",
        ("neural_engine",),
        "a product with a triangular matrix for static lengths",
        constant_products.running_sum,
    ),
    Rewrite("PLACE13", ("neural_engine",), "a product with the sigmoid", activations.silu),
    Rewrite(
        "PLACE14",
        ("neural_engine",),
        "a product with the sigmoid of a polynomial, for float16",
        activations.gelu,
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
    Rewrite(
        "PLACE15",
        ("neural_engine",),
        "a 1x1 convolution of (B, C, 1, S), and the ops between two of them in that layout",
        layout.apply,
        on_request=True,
    ),
)
