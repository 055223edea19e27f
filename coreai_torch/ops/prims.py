"""Decompose the ops of `torch.ops.prims`, which graphs from other decomposition tables hold.

Torch says how each computes in its other ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..lowering import case, decomposes
from ..lowering.cases import Case, b1, c64, f16, f32, i32

_PRIMS = torch.ops.prims
_POSITIVE = (case(f32(2, 3, low=1.0, high=2.0)),)
_BELOW_ONE = (case(f32(2, 3, low=-0.9, high=0.9)),)
_FLOATS = (case(f32(2, 3)), case(f32()))
_NUMBERS = (case(f32(2, 3), f32(2, 3)), case(i32(4), i32(4, low=1)))
_INTEGERS = (case(i32(4), i32(4)), case(b1(4), b1(4)))
_COMPARED = (case(f32(2, 3), f32(2, 3)), case(i32(4), i32(4)))

_FLOAT_FUNCTIONS = """
abs asinh atan ceil cos cosh erf erfc exp exp2 expm1 floor isfinite neg round sign sin sinh
tan tanh trunc bessel_i0 bessel_i0e bessel_i1 bessel_i1e bessel_j0 bessel_j1 cbrt erfcx
spherical_bessel_j0
"""
_POSITIVE_FUNCTIONS = "acosh digamma lgamma log log10 log1p log2 reciprocal rsqrt sqrt"
_ARITHMETIC = "add div fmod maximum minimum mul remainder sub"
_ELEMENTWISE: Mapping[str, Sequence[Case]] = {
    **dict.fromkeys(_FLOAT_FUNCTIONS.split(), _FLOATS),
    **dict.fromkeys(("acos", "asin", "atanh", "erf_inv"), _BELOW_ONE),
    **dict.fromkeys(_POSITIVE_FUNCTIONS.split(), _POSITIVE),
    **dict.fromkeys(_ARITHMETIC.split(), _NUMBERS),
    **dict.fromkeys(("eq", "ge", "gt", "le", "lt", "ne"), _COMPARED),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), _INTEGERS),
    **dict.fromkeys(("atan2", "fmax", "fmin", "hypot"), _NUMBERS[:1]),
    **dict.fromkeys(("igamma", "igammac"), (case(f32(3, low=1.0), f32(3, low=0.5)),)),
    "bitwise_not": (case(i32(4)), case(b1(4))),
    "conj": (case(c64(3)),),
    "conj_physical": (case(c64(3)),),
    "fill": (case(f32(2, 3), 1.5),),
    "gcd": (case(i32(4), i32(4)),),
    "imag": (case(c64(3)),),
    "ndtri": (case(f32(3, low=0.1, high=0.9)),),
    "nextafter": (case(f32(3), f32(3)),),
    "pow": (case(f32(3, low=0.5), f32(3)),),
    "real": (case(c64(3)),),
    "shift_left": (case(i32(4), i32(4, low=0, high=3)),),
    "shift_right_arithmetic": (case(i32(4), i32(4, low=0, high=3)),),
    "where": (case(b1(2, 3), f32(2, 3), f32(2, 3)),),
    "zeta": (case(f32(3, low=1.5, high=3.0), f32(3, low=1.0)),),
}
_OF_SHAPES: Mapping[str, Sequence[Case]] = {
    "as_strided_scatter": (
        case(f32(3, 4), f32(2, 2), [2, 2], [4, 1], 1, static_only="the strides are those of 3 x 4"),
    ),
    "broadcast_in_dim": (
        case(f32(3), [2, 3, 4], [1], static_only="the shape is constant"),
        case(f32(2, 1), [2, 5], [0, 1], static_only="the shape is constant"),
        case(f32(), [2], [], static_only="the shape is constant"),
    ),
    "cat": (case([f32(2, 3), f32(2, 1)], 1),),
    "clone": (case(f32(2, 3)),),
    "collapse_view": (case(f32(2, 3, 4), 0, 1),),
    "reshape": (case(f32(2, 3), [3, 2], static_only="the shape is constant"),),
    "rev": (case(f32(2, 3), [0, 1]),),
    "split_dim": (case(f32(6, 2, fixed=True), 0, 3), case(i32(4, fixed=True), 0, 2)),
    "squeeze": (case(f32(1, 3, 1), [0, 2]), case(f32(1, 3, 1), [])),
    "transpose": (case(f32(2, 3, 4), [2, 0, 1]),),
    "view_of": (case(f32(2, 3)),),
}
_REDUCTIONS: Mapping[str, Sequence[Case]] = {
    "amax": (case(f32(2, 3), [1]), case(i32(2, 3), [0, 1])),
    "amin": (case(f32(2, 3), [0]),),
    "prod": (case(f32(2, 3), [1]), case(i32(2, 3), [0, 1])),
    "sum": (case(f32(2, 3), [1]), case(i32(2, 3), [0, 1]), case(f16(2, 3), [0])),
    "var": (case(f32(4, 3), [0], 1), case(f32(4, 3), [0, 1], 0)),
}


@decomposes(
    _PRIMS.collapse.default,
    cases=[case(f32(2, 3, 4), 0, 1), case(f32(2, 3, 4), 1, 2), case(f32(2, 3), 0, 0)],
)
def collapse(a: torch.Tensor, start: int, end: int) -> torch.Tensor:
    return a.flatten(start, end)  # torch writes into an empty tensor


def _as_torch_does(op: Any) -> Callable[..., Any]:
    def decomposed(*args: Any, **kwargs: Any) -> Any:
        return op.impl_aten(*args, **kwargs)

    return decomposed


for _name, _cases in {**_ELEMENTWISE, **_OF_SHAPES, **_REDUCTIONS}.items():
    _op: Any = getattr(_PRIMS, _name).default
    decomposes(_op, cases=_cases)(_as_torch_does(_op))
