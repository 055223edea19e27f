"""The vocabulary of lowerings: functions that emit ops of the dialect.

They guard against known failures of the compiler and the runtime. `docs/dialect.md` lists them.
The names end with `_` where the plain one is a Python builtin; the plain one works too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from coreai._compiler.ir import Attribute, MLIRError, RankedTensorType, Type, Value

from ..errors import unknown_attribute
from .arithmetic import (
    abs_,
    add,
    create_complex,
    div,
    floor_divide,
    imaginary_part,
    matmul,
    maximum,
    minimum,
    modulo,
    mul,
    neg,
    pow_,
    real_part,
    round_,
    sub,
)
from .build import SMALL
from .casting import cast, dtype, is_bool, is_complex, is_float, is_integer, raw_cast, trunc, wide
from .filling import pad
from .functions import (
    acos,
    acosh,
    asin,
    asinh,
    atan,
    atanh,
    cos,
    cosh,
    erf,
    exp,
    gelu,
    log,
    relu,
    rsqrt,
    sigmoid,
    silu,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)
from .indexing import (
    argsort,
    gather_along_axis,
    gather_nd,
    non_zero,
    scatter_along_axis,
    scatter_nd,
    sort,
)
from .literals import constant, known_number, like, range_, tensor_constant, zeros
from .logic import (
    bitwise_and,
    bitwise_or,
    bitwise_xor,
    broadcast,
    equal,
    greater,
    less,
    logical_and,
    logical_not,
    logical_or,
    logical_xor,
    not_equal,
    where,
)
from .operands import Binary, Operand, Unary
from .rearranging import (
    concat,
    expand_dims,
    reverse,
    shrink_dims,
    slice_,
    slice_axis,
    slice_update,
    split,
    tile,
    transpose,
    whole,
)
from .reductions import (
    all_,
    any_,
    any_one,
    argmax,
    reduce_max,
    reduce_mean,
    reduce_min,
    reduce_product,
    reduce_sum,
    scan,
    softmax,
)
from .shapes import (
    Dim,
    broadcast_to,
    i32,
    may_be_empty,
    refine,
    reshape,
    size,
    sizes,
    sizes_of_type,
    u32,
)
from .spatial import conv, conv_transpose, interpolate, max_pool, sum_pool

_OWN = ("TYPE_CHECKING", "annotations", "unknown_attribute")
__all__ = [name for name in dir() if not name.startswith("_") and name not in _OWN]

# After all imports, and used by callers only: nothing in this module needs the builtins.
abs = abs_
all = all_
any = any_
pow = pow_
range = range_
round = round_
slice = slice_


# Names of torch, and the function that does the same here.
_TORCH_NAMES = {
    "arange": "range",
    "cat": "concat",
    "complex": "create_complex",
    "cumprod": "scan",
    "cumsum": "scan",
    "divide": "div",
    "eq": "equal",
    "expand": "broadcast_to",
    "flip": "reverse",
    "fmod": "modulo",
    "gather": "gather_along_axis",
    "gt": "greater",
    "imag": "imaginary_part",
    "lt": "less",
    "max": "reduce_max",
    "mean": "reduce_mean",
    "min": "reduce_min",
    "multiply": "mul",
    "narrow": "slice_axis",
    "ne": "not_equal",
    "permute": "transpose",
    "prod": "reduce_product",
    "real": "real_part",
    "repeat": "tile",
    "scatter": "scatter_along_axis",
    "split_with_sizes": "split",
    "squeeze": "shrink_dims",
    "subtract": "sub",
    "sum": "reduce_sum",
    "to": "cast",
    "unsqueeze": "expand_dims",
    "view": "reshape",
}


if not TYPE_CHECKING:  # mypy would accept every name

    def __getattr__(name: str) -> object:
        raise unknown_attribute(__name__, name, __all__, _TORCH_NAMES)
