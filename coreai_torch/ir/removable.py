"""Operations that the compiler removes where they change nothing, and what stops it."""

from __future__ import annotations

from collections.abc import Callable

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Block, Value

from . import types

# Operations that `canonicalize` removes where they change nothing, and the operand they return.
REMOVABLE = {
    **dict.fromkeys(("reshape", "expand_dims", "shrink_dims", "transpose", "cast", "slice"), 0),
    **dict.fromkeys(("split", "tile", "pad", "broadcast_to", "broadcast_in_dims"), 0),
    "concat": 1,
    "slice_update": 4,
}
_BROADCASTING = "coreai.decomposable.broadcasting_"


def made_by(x: Value) -> str:
    """The name of the op that a value is a result of; empty for an argument."""
    owner = x.owner
    return "" if isinstance(owner, Block) else str(owner.name)


def kind_of(name: str) -> str:
    """Return the operation's name without dialect: `add` for `coreai.add` and its broadcasting."""
    return name.removeprefix(_BROADCASTING).removeprefix("coreai.")


def before_casts(x: Value, accepts: Callable[[torch.dtype], bool]) -> Value | None:
    """Return the value of an accepted dtype that casts made `x` from; None without such casts.

    The compiler removes a cast to a type that is as wide, and back: 1.5 cast to int32 and to
    float32 stays 1.5 (coreai-core 1.0.0b3). It first removes what lies between and changes nothing.
    """
    value, width = x, types.dtype_of(x.type).itemsize
    while (kind := kind_of(made_by(value))) in REMOVABLE:
        width = min(width, types.dtype_of(value.type).itemsize)
        value = value.owner.operands[REMOVABLE[kind]]
        dtype = types.dtype_of(value.type)
        if kind == "cast" and accepts(dtype):
            return value if dtype.itemsize <= width else None
    return None


def barrier(x: Value) -> Value:
    """The same value behind an operation that stays: the greater of two equals."""
    dtype = types.dtype_of(x.type)
    if dtype.is_complex:  # the parts put together again, and nothing else, are removed
        real, imaginary = gen.RealPartOp(x).result, gen.ImaginaryPartOp(x).result
        return gen.CreateComplexOp(barrier(real), imaginary).result
    if dtype == torch.bool:
        return gen.OrOp(x, x).result
    return gen.MaximumOp(x, x).result
