"""What each compute unit rejects, runs wrongly or runs slowly: one row each, with its source.

No row was measured by this project. `high` confidence is a statement or shipped code of Apple, or
a reproduced report; `medium` one measurement by others; `low` a conclusion from a list of types or
from a compiler's binary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from . import patterns
from .patterns import Test, calls, of_kind

Confidence: TypeAlias = Literal["high", "medium", "low"]
Effect: TypeAlias = Literal["leaves", "wrong", "slow"]

_RULES = "coreai-models, rules for the neural engine"
_GUIDANCE = "coreai-models, guidance for agents"
_MASK_DECODER = "coreai-models, mask decoder of SAM 3 for iOS"
_FORGE = "anemll-forge, porting notes"
_BINARY = "MILLer, audit of a compiler of macOS 26"


@dataclass(frozen=True)
class PlacementRule:
    """A construct and what units do with it; `code` is that of the lint rule about it, if any."""

    code: str
    units: tuple[str, ...]
    effect: Effect
    reason: str
    hint: str
    source: str
    confidence: Confidence
    test: Test


_NE, _GPU = ("neural_engine",), ("gpu",)

RULES: tuple[PlacementRule, ...] = (
    PlacementRule(
        "HAZ07", _NE, "leaves", "more than five axes", "merge axes with reshape",
        _RULES, "high", patterns.has_high_rank,
    ),
    PlacementRule(
        "HAZ51", _NE, "leaves", "an element type that the unit lacks: it has float16, float8, and "
        "integers of 8 and 16 bits", "compute in float16; keep index arithmetic in the app",
        f"{_RULES}; coreai-model-zoo, note on Qwen3.5", "high", patterns.has_other_type,
    ),
    PlacementRule(
        "PLACE01", _NE, "leaves", "a boolean mask", "pass a float16 mask and multiply or add it",
        f"{_RULES}; {_BINARY}", "low", patterns.has_mask,
    ),
    PlacementRule(
        "HAZ54", _NE, "leaves", "a dynamic size", "convert one entry point for each size: sizes=",
        _RULES, "high", patterns.has_dynamic_size,
    ),
    PlacementRule(
        "PLACE02", ("neural_engine", "gpu"), "leaves", "interpolate of the nearest element",
        "repeat elements by a broadcast, or multiply with a constant matrix",
        f"coreai-models, diffusion components; {_MASK_DECODER}", "high", patterns.is_nearest,
    ),
    PlacementRule(
        "PLACE03", _NE, "leaves", "interpolate, whose scales are float32 constants",
        "multiply with a constant matrix for each axis",
        _MASK_DECODER, "medium", of_kind("interpolate"),
    ),
    PlacementRule(
        "HAZ08", ("neural_engine", "gpu", "cpu"), "leaves", "a loop or branch",
        "unroll it, or call the program once per step",
        f"{_GUIDANCE}; tests of coreai-torch", "medium", of_kind("while", "if"),
    ),
    PlacementRule(
        "HAZ35", ("neural_engine", "gpu"), "leaves", "a slice write at a computed position",
        "write at a constant position, or concatenate",
        "coreai-models issues 5 and 6", "medium", patterns.writes_at_value,
    ),
    PlacementRule(
        "PLACE04", _NE, "leaves", "a slice write", "concatenate the parts",
        _FORGE, "medium", of_kind("slice_update"),
    ),
    PlacementRule(
        "HAZ52", _NE, "leaves", "a scatter, which moved a whole graph to the GPU",
        "compute it in the app, or as a product with a matrix",
        _FORGE, "medium", of_kind("scatter_nd", "scatter_along_axis"),
    ),
    PlacementRule(
        "HAZ52", _NE, "leaves", "a gather", "move it to another entry point, or to the app",
        f"{_RULES}; coreai-models, common issues", "medium",
        of_kind("gather_nd", "gather_along_axis"),
    ),
    PlacementRule(
        "HAZ53", _NE, "leaves", "a sort", "return the scores, and select in the app",
        "coreai-torch issue 66", "high", of_kind("sort", "argsort"),
    ),
    PlacementRule(
        "HAZ15", _NE, "wrong", "argmax, which gave wrong indices on an iPhone 17 Pro",
        "return the scores, and select in the app",
        "coreai-torch issue 116", "high", of_kind("argmax", "argmin"),
    ),
    PlacementRule(
        "PLACE05", _NE, "leaves", "a cumulative sum", "multiply with a triangular matrix",
        "no Apple model for the unit has one", "low", of_kind("scan"),
    ),
    PlacementRule(
        "PLACE06", _NE, "leaves", "group norm, which some chips do not run",
        "normalize with reshape, mean and product",
        _MASK_DECODER, "medium", calls("group_norm"),
    ),
    PlacementRule(
        "PLACE07", _NE, "leaves", f"an axis of more than {patterns.LONGEST_AXIS:,} elements",
        "divide the axis into blocks", _FORGE, "medium", patterns.has_long_axis,
    ),
    PlacementRule(
        "PLACE08", _NE, "leaves", f"attention over more than {patterns.MOST_KEYS:,} keys",
        "attend to blocks of keys", _FORGE, "medium", patterns.has_many_keys,
    ),
    PlacementRule(
        "PLACE09", _NE, "leaves", "a product of computed matrices that is multiplied again",
        "compute that part on another unit, or unroll it into elementwise ops",
        _FORGE, "medium", patterns.is_product_of_product,
    ),
    PlacementRule(
        "PLACE10", _NE, "wrong", "a mask with -inf before a softmax", "use -40000 in the mask",
        f"{_RULES}; coreai-models, common issues", "high", patterns.is_masked_by_infinity,
    ),
    PlacementRule(
        "PLACE11", _NE, "slow", "a stride or dilation with a prime factor other than 2 and 3",
        "use two convolutions, or pool", _RULES, "medium", patterns.has_odd_stride,
    ),
    PlacementRule(
        "PLACE12", _NE, "leaves", "a maximum over a dilated window", "use a dense window",
        _BINARY, "low", patterns.is_dilated_pool,
    ),
    PlacementRule(
        "PLACE13", _NE, "wrong", "silu, which errs by 1e-3 near 0", "0.5 * x * (1 + tanh(x / 2))",
        "anemll-forge, numerics of DeltaNet", "medium", of_kind("silu"),
    ),
    PlacementRule(
        "PLACE14", _NE, "wrong", "exact gelu, which the unit computes with tanh",
        'nn.GELU(approximate="tanh")', _BINARY, "low", patterns.is_exact_gelu,
    ),
    PlacementRule(
        "PLACE15", _NE, "slow", "a product with a constant matrix, which may leave the unit; "
        "others saw it run there", 'a 1x1 convolution: extra_rewrites=["PLACE15"]',
        f"{_RULES}; {_FORGE}", "low", patterns.is_linear,
    ),
    PlacementRule(
        "PLACE16", _NE, "wrong", "a linear layer with blocks of 4-bit weights, which the unit "
        "computes wrongly without a message", "one scale for each output, or 8 bits",
        "coreai-models issue 205", "high", patterns.has_blocks_of_int4,
    ),
    PlacementRule(
        "PLACE17", _NE, "slow", "a stride above 2 with weights from a lookup table",
        "leave this layer uncompressed, or use a scale", _RULES, "medium",
        patterns.has_wide_stride_of_table,
    ),
    PlacementRule(
        "HAZ41", _NE, "leaves", "weights from a lookup table with more than five axes",
        "reshape the weight to rank 4 before it is compressed",
        "coreai-models, segmentation pipeline", "high", patterns.has_table_of_high_rank,
    ),
    PlacementRule(
        "HAZ09", ("neural_engine", "cpu"), "leaves", "a Metal kernel, which runs on the GPU alone",
        "write it in torch", "coreai-model-zoo, compute units and authoring", "high",
        of_kind("metal4_kernel"),
    ),
)  # fmt: skip
