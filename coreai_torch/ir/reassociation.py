"""Stop the compiler from combining two constants of a chain where that changes numbers.

`optimize()` and the loading of an asset by the runtime run MLIR's `canonicalize`. Its patterns for
add, sub, mul and divide reassociate (coreai-core 1.0.0b3; `tests/program/test_optimizer_traps.py`
and `tests/properties/test_constant_arithmetic.py` reproduce it):

- Two adjacent sums, or two adjacent products, with one constant operand each become one, whatever
  side the constants are on. With the constants `a` and `b`, all 32 combinations are rewritten:
  `(x + a) + b` to `x + (a + b)`, `(a - x) - b` to `(a - b) - x`, `b - (a - x)` to `(b - a) + x`,
  `(x * a) / b` to `x * (a / b)`, `b / (x / a)` to `(b * a) / x`, `b / (a / x)` to `(b / a) * x`.
- The constants may be scalars, tensors, or tensors that broadcast. A second use of the inner result
  does not prevent the rewrite, nor does an `if` region around the outer one.
- `optimize()` joins pairs of a chain, for `Build` registers a hook that prevents folding. Without
  the hook (in the runtime, or in another process) joined constants are folded and join again:
  `x * 60 * 60 * 60` in float16 becomes `x * inf`. Operands computed from constants (by reshape,
  cast, sqrt, broadcast_to, maximum) then count as constants.
- float32, float16, complex64 and all integers are rewritten; bfloat16 is not.
- Sums are not joined with products, `(x + a) + y` does not expose `a`, and abs, maximum, relu,
  floor_divide, modulo, pow, reductions and invoked graphs stop the rewrite.
- An operation that is removed as an identity does not stop it: reshape, expand_dims, shrink_dims,
  transpose, slice, split, concat of one operand, tile, broadcast_to, slice_update of all elements,
  real and imaginary parts put together again, and casts to a type of the same or a greater width
  and back.

The order decides float results: `(x + 1e8) + 1` at -1e8 is 1, `x + (1e8 + 1)` is 0, and
`x * 7 / 23` at 23 is 7, `x * (7 / 23)` is 6.9999995. A barrier, one elementwise operation, keeps
the constants apart. It is left out for

- sums and products of integers, which wrap; quotients do not;
- the factors 1 and -1, which negation uses, where joining gives the same bits;
- one pair of addends `a` and `b` with `|a + b|` of the size of `|b|`, as the bias of a convolution
  and the 3 of `hardswish`: with `r = (x + a) + b`, eager rounds `r` and `x + a = r - b`, and one of
  the two is at least `|b| / 2`; the joined sum rounds `r` and `a + b`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from coreai._compiler.ir import Block, RankedTensorType, Value

from . import types
from .build import SMALL, Build
from .casting import element_dtype
from .removable import REMOVABLE, barrier, kind_of, made_by

_SUMS = {"add", "sub"}
_PRODUCTS = {"mul", "divide"}
_ADDENDS = 4.0  # the ratio of sizes up to which two addends may be joined
_MOST_OPERATIONS = 64  # looked at between a value and the constants it is computed from
_CONSTANT_DEPTH = 4  # operations between a constant operand and the constants it is computed from


def block_reassociation(name: str, x: Value, y: Value) -> tuple[Value, Value]:
    """Return the operands of a sum or product, with a barrier between constants if needed."""
    left, right = _is_constant(x), _is_constant(y)
    if left and not right and _joining_changes_numbers(kind_of(name), y, x, on_left=True):
        return x, barrier(y)
    if right and not left and _joining_changes_numbers(kind_of(name), x, y, on_left=False):
        return barrier(x), y
    return x, y


def _is_constant(x: Value, depth: int = _CONSTANT_DEPTH) -> bool:
    """Return whether a value is a constant or computed from constants alone."""
    known, key = Build.current().run_time_values, hash(x)
    if key in known:  # without this a chain of 5,000 sums takes a fifth longer
        return False
    owner = x.owner
    if not isinstance(owner, Block):
        if owner.name == "coreai.constant":
            return True
        operands = owner.operands if depth else ()
        if len(operands) > 0 and all(_is_constant(o, depth - 1) for o in operands):
            return True
    if depth == _CONSTANT_DEPTH:
        known.add(key)
    return False


def is_computed_from_constants(x: Value) -> bool:
    """Return whether a value is a constant, or computed from constants by a few operations."""
    waiting = [x]
    for _ in range(_MOST_OPERATIONS):
        if not waiting:
            return True
        owner = waiting.pop().owner
        if isinstance(owner, Block):
            return False
        if owner.name != "coreai.constant":
            if not len(owner.operands):
                return False
            waiting += owner.operands
    return False


def _joining_changes_numbers(outer: str, x: Value, constant: Value, *, on_left: bool) -> bool:
    """Return whether `x` is a sum or product whose constant must stay apart from `constant`."""
    if element_dtype(x) == torch.bfloat16:
        return False
    family = _SUMS if outer in _SUMS else _PRODUCTS
    inner, negated = _find_inner(x, family)
    if element_dtype(x).is_floating_point or element_dtype(x).is_complex:
        if family is _SUMS:
            return inner is not None and not _may_join_addends(outer, inner, constant, on_left)
        if outer == "mul" and _is_unit(constant):
            return inner is not None and _divides_by_constant(inner)  # -(x / 3) is x * (-1 / 3)
        return inner is not None or (negated and outer == "divide" and not on_left)
    kinds = {outer, "" if inner is None else kind_of(made_by(inner))}
    return inner is not None and "divide" in kinds


def _find_inner(x: Value, family: set[str]) -> tuple[Value | None, bool]:
    """Return the sum or product with a constant that `x` may come down to, if there is one.

    The second result says whether factors of 1 or -1 were passed on the way.
    """
    value, negated = x, False
    while True:
        kind = kind_of(made_by(value))
        if kind in family:
            sides = [_is_constant(o) for o in value.owner.operands]
            if sum(sides) != 1 or not _may_have_one_type(value.type, x.type):
                return None, negated
            if kind != "mul" or not _is_unit(value.owner.operands[sides.index(True)]):
                return value, negated
            value, negated = value.owner.operands[sides.index(False)], True
        elif kind in REMOVABLE and _keeps_width(value, x):
            value = value.owner.operands[REMOVABLE[kind]]
        else:
            return None, negated


def _may_join_addends(outer: str, inner: Value, constant: Value, on_left: bool) -> bool:
    """Return whether joining the constants of two sums rounds about as eager does."""
    operands = inner.owner.operands
    side = 0 if _is_constant(operands[0]) else 1
    if _find_inner(operands[1 - side], _SUMS)[0] is not None:
        return False  # a chain of three
    a, b = _addend(operands[side]), _addend(constant)
    if a is None or b is None:
        return False
    if (kind_of(made_by(inner)) == "sub" and side == 1) != (outer == "sub" and on_left):
        a = -a
    return _is_sum_near(a, -b if outer == "sub" and not on_left else b, element_dtype(inner))


def _is_sum_near(a: torch.Tensor, b: torch.Tensor, kind: torch.dtype) -> bool:
    if not _may_broadcast(a.shape, b.shape):
        return True  # the value between them changes its size, so the compiler cannot join them
    total = a + b
    exact = (total - a == b) & (total - b == a) & (total.to(kind) == total)
    larger = total.abs() <= _ADDENDS * b.abs()
    smaller = b.abs() <= _ADDENDS * total.abs()
    one_zero = (total != 0) | (a.signbit() == b.signbit())  # (x - 0.0) - -0.0 at -0.0 is 0.0
    near = (exact | larger) & smaller & one_zero & total.to(kind).isfinite()
    return bool((near | (b.isinf() & a.isfinite())).all())


def _may_broadcast(one: Sequence[int], other: Sequence[int]) -> bool:
    pairs = zip(reversed(one), reversed(other), strict=False)
    return all(m == n or 1 in (m, n) for m, n in pairs)


def _addend(constant: Value) -> torch.Tensor | None:
    """Return the float64 values of a real constant that is small enough to look at."""
    if made_by(constant) != "coreai.constant" or not element_dtype(constant).is_floating_point:
        return None
    content = Build.current().content(constant)
    if content is None or content.numel() > SMALL:
        return None
    return content.detach().to("cpu", torch.float64)


def _keeps_width(value: Value, x: Value) -> bool:
    """Return whether a cast to this value's type and back to the type of `x` is removed."""
    return bool(element_dtype(value).itemsize >= element_dtype(x).itemsize)


def _may_have_one_type(one: RankedTensorType, other: RankedTensorType) -> bool:
    if one.element_type != other.element_type or one.rank != other.rank:
        return False
    pairs = zip(one.shape, other.shape, strict=True)
    return all(m == n or types.DYNAMIC in (m, n) for m, n in pairs)


def _is_unit(constant: Value) -> bool:
    """Return whether a constant is the number 1.0 or -1.0."""
    if made_by(constant) != "coreai.constant" or not element_dtype(constant).is_floating_point:
        return False
    content = Build.current().content(constant)
    return content is not None and content.numel() == 1 and abs(float(content)) == 1.0


def _divides_by_constant(product: Value) -> bool:
    return kind_of(made_by(product)) == "divide" and _is_constant(product.owner.operands[1])
