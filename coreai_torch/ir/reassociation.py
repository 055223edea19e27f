"""Stop the compiler from combining two constants of a chain where that changes numbers.

The compiler (coreai-core 1.0.0b2) rewrites `(x + a) - b` to `x + (a - b)` and `(x / a) * b` to
`x * (b / a)` whenever `a` and `b` are constants: the integers 7 / 3 * 3 become 7, `(x + 1e8) - 1e8`
becomes `x`, and two factors of 1e30 become one infinity. An operation between the two that the
rewrite does not look through stops it. It is added only where the combined constant gives other
numbers.
"""

from __future__ import annotations

import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import Block, Value

from .build import Build
from .casting import dtype

_SUMS = {"coreai.decomposable.broadcasting_add": 1.0, "coreai.decomposable.broadcasting_sub": -1.0}
_PRODUCTS = {
    "coreai.decomposable.broadcasting_mul": 1.0,
    "coreai.decomposable.broadcasting_divide": -1.0,
}


def block_reassociation(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    """Return the operands of a sum or product, with a barrier between constants if needed."""
    if (constant := _constant(y)) is not None and _joins_wrongly(name, x, constant):
        return barrier(x), y
    if (constant := _constant(x)) is not None and _joins_wrongly(name, y, constant):
        return x, barrier(y)
    return x, y


def made_by(x: Value) -> str:
    """The name of the op that a value is a result of; empty for an argument."""
    return "" if isinstance(x.owner, Block) else str(x.owner.name)


def barrier(x: Value) -> Value:
    """The same value behind an operation that stays: the greater of two equals."""
    if dtype(x).is_complex:
        parts = gen.RealPartOp(x).result, gen.ImaginaryPartOp(x).result
        return gen.CreateComplexOp(*parts).result
    if dtype(x) == torch.bool:
        return gen.OrOp(x, x).result
    return gen.MaximumOp(x, x).result


def _constant(x: Value) -> torch.Tensor | None:
    if made_by(x) != "coreai.constant":
        return None
    return Build.current().content(x)


def _joins_wrongly(name: str, inner: Value, outer: torch.Tensor) -> bool:
    """Whether `inner` is itself a sum or product with a constant that must stay apart."""
    family = _SUMS if name in _SUMS else _PRODUCTS
    if made_by(inner) not in family:
        return False
    constants = [c for c in map(_constant, inner.owner.operands) if c is not None]
    if len(constants) != 1:
        return False
    signs = family[made_by(inner)], family[name]
    if not dtype(inner).is_floating_point:
        # Sums and products of integers wrap the same either way; quotients do not.
        return family is _PRODUCTS and -1.0 in signs
    first, second = (c.to(torch.float64) for c in (constants[0], outer))
    if family is _SUMS:
        return _cancels(signs[0] * first, signs[1] * second)
    return not all(_is_moderate(c, dtype(inner)) for c in (first, second))


def _cancels(a: torch.Tensor, b: torch.Tensor) -> bool:
    larger = torch.maximum(a.abs(), b.abs())
    return not bool(((a + b).abs() >= larger / 2).all())


def _is_moderate(factor: torch.Tensor, kind: torch.dtype) -> bool:
    """Whether a factor is far from taking ordinary numbers to the ends of the range."""
    limit = 2.0**6 if kind == torch.float16 else 2.0**30
    size = factor.abs()
    return bool(((size == 0) | ((size <= limit) & (size >= 1 / limit))).all())
