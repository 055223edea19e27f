"""Lower orthogonal polynomials with a tensor degree, by their three-term recurrences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ...ir import dialect as cai
from ...ir import graph
from ...ir.dialect import Value
from ...lowering import Ctx, Promote, case, lowers
from ...lowering.cases import f32, i32
from ...torch_compat import aten

# Maps the step k, the argument, and the last two values to the next value.
Step = Callable[[Value, Value, Value, Value], Value]
Polynomial = Callable[[Value, Value], Value]

_DEGREES = (0.0, 1.0, 2.0, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0, 12.0, -1.0)
# torch does not define the result for NaN
_POINTS = (0.0, 1.0, -1.0, 0.5, -0.3, 0.97, 1.5, -2.0, 7.0)
_CASES = [
    case(f32(9, values=_POINTS), f32(11, 1, values=_DEGREES)),
    case(i32(4, low=-3, high=3), i32(4, low=0, high=5)),
    case(f32(), f32(3, low=0, high=5)),
]


def _register(name: str, polynomial: Polynomial) -> None:
    op = getattr(aten, f"special_{name}")
    _overload(op.default, polynomial, _CASES)
    _overload(op.x_scalar, polynomial, [case(0.3, f32(11, values=_DEGREES))])
    _overload(op.n_scalar, polynomial, [case(f32(9, values=_POINTS), n) for n in (0, 1, 4, 9)])


def _overload(target: Any, polynomial: Polynomial, cases: Sequence[Any]) -> None:
    @lowers(target, promote=Promote.WIDE, cases=cases)
    def lower(ctx: Ctx, x: Value, n: Value) -> Value:
        x, degree = cai.broadcast(x, cai.trunc(n))
        zero, one = cai.like(x, 0), cai.like(x, 1)
        value = cai.where(cai.equal(degree, zero), one, polynomial(x, degree))
        return cai.where(cai.less(degree, zero), zero, value)


def _scale(factor: float, x: Value) -> Value:
    return cai.mul(cai.like(x, factor), x)


def _recur(x: Value, degree: Value, first: Value, step: Step) -> Value:
    """Run the recurrence from degree 1 to each element's degree; stop where the value is NaN."""
    one = cai.like(x, 1)

    def active(state: Sequence[Value]) -> Value:
        known = cai.equal(state[1], state[1])
        return cai.logical_and(cai.less(state[0], degree), known)

    def next_(state: Sequence[Value]) -> list[Value]:
        k, last, before = state
        is_active = active(state)
        next_value = step(k, x, last, before)
        updated = cai.where(is_active, next_value, last), cai.where(is_active, last, before)
        return [cai.add(k, one), *updated]

    last, before = cai.broadcast(first, cai.where(cai.equal(x, x), one, x))
    state = graph.loop([one, last, before], lambda s: cai.any_one(active(s)), next_)
    return state[1]


def _chebyshev_step(k: Value, x: Value, last: Value, before: Value) -> Value:
    return cai.sub(cai.mul(_scale(2, x), last), before)


def _hermite_h(k: Value, x: Value, last: Value, before: Value) -> Value:
    return cai.sub(cai.mul(_scale(2, x), last), cai.mul(_scale(2, k), before))


def _hermite_he(k: Value, x: Value, last: Value, before: Value) -> Value:
    return cai.sub(cai.mul(x, last), cai.mul(k, before))


def _laguerre(k: Value, x: Value, last: Value, before: Value) -> Value:
    one = cai.like(x, 1)
    coefficient = cai.add(_scale(2, k), cai.sub(one, x))
    return cai.div(cai.sub(cai.mul(coefficient, last), cai.mul(k, before)), cai.add(k, one))


def _legendre(k: Value, x: Value, last: Value, before: Value) -> Value:
    one = cai.like(x, 1)
    coefficient = cai.mul(cai.add(_scale(2, k), one), x)
    return cai.div(cai.sub(cai.mul(coefficient, last), cai.mul(k, before)), cai.add(k, one))


def _affine(factor: float, x: Value, offset: float) -> Value:
    return cai.add(_scale(factor, x), cai.like(x, offset))


def _parity_sign(degree: Value) -> Value:
    """Return 1 for even degrees, -1 for odd ones."""
    return cai.sub(cai.like(degree, 1), _scale(2, cai.modulo(degree, cai.like(degree, 2))))


def _first_kind(angle: Value, degree: Value) -> tuple[Value, Value, Value]:
    """Return the value inside (-1, 1) from the angle acos(x), and the values at 1 and -1."""
    inside = cai.cos(cai.mul(degree, angle))
    return inside, cai.like(degree, 1), _parity_sign(degree)


def _second_kind(angle: Value, degree: Value) -> tuple[Value, Value, Value]:
    above = _affine(1, degree, 1)
    inside = cai.div(cai.sin(cai.mul(above, angle)), cai.sin(angle))
    return inside, above, cai.mul(above, _parity_sign(degree))


def _third_kind(angle: Value, degree: Value) -> tuple[Value, Value, Value]:
    phase = cai.mul(_affine(1, degree, 0.5), angle)
    inside = cai.div(cai.cos(phase), cai.cos(_scale(0.5, angle)))
    return inside, cai.like(degree, 1), cai.mul(_affine(2, degree, 1), _parity_sign(degree))


def _fourth_kind(angle: Value, degree: Value) -> tuple[Value, Value, Value]:
    phase = cai.mul(_affine(1, degree, 0.5), angle)
    inside = cai.div(cai.sin(phase), cai.sin(_scale(0.5, angle)))
    return inside, _affine(2, degree, 1), _parity_sign(degree)


Kind = Callable[[Value, Value], tuple[Value, Value, Value]]


def _chebyshev(kind: Kind, first: tuple[float, float], high: int, x: Value, degree: Value) -> Value:
    """Return a Chebyshev polynomial; inside (-1, 1), degrees above `high` use the angle.

    Torch does the same; the recurrence would accumulate rounding errors.
    """
    one = cai.like(x, 1)
    within = cai.less(cai.abs_(x), one)
    by_angle = cai.logical_and(within, cai.greater(degree, cai.like(degree, high)))
    inside, at_one, at_minus_one = kind(cai.acos(x), degree)
    at_end = cai.equal(cai.abs_(x), one)
    loop_degree = cai.where(cai.logical_or(by_angle, at_end), one, degree)
    value = _recur(x, loop_degree, _affine(first[0], x, first[1]), _chebyshev_step)
    value = cai.where(by_angle, inside, value)
    end_value = cai.where(cai.less(x, cai.like(x, 0)), at_minus_one, at_one)
    return cai.where(at_end, end_value, value)


def _shifted(polynomial: Polynomial, x: Value, degree: Value) -> Value:
    return polynomial(_affine(2, x, -1), degree)


def _by_recurrence(step: Step, first: tuple[float, float], x: Value, degree: Value) -> Value:
    return _recur(x, degree, _affine(first[0], x, first[1]), step)


_CHEBYSHEV: dict[str, tuple[Kind, tuple[float, float], int]] = {
    "t": (_first_kind, (1, 0), 6),
    "u": (_second_kind, (2, 0), 8),
    "v": (_third_kind, (2, -1), 8),
    "w": (_fourth_kind, (2, 1), 8),
}
for _letter, _arguments in _CHEBYSHEV.items():
    _polynomial = functools.partial(_chebyshev, *_arguments)
    _register(f"chebyshev_polynomial_{_letter}", _polynomial)
    _register(f"shifted_chebyshev_polynomial_{_letter}", functools.partial(_shifted, _polynomial))
_register("hermite_polynomial_h", functools.partial(_by_recurrence, _hermite_h, (2, 0)))
_register("hermite_polynomial_he", functools.partial(_by_recurrence, _hermite_he, (1, 0)))
_register("laguerre_polynomial_l", functools.partial(_by_recurrence, _laguerre, (-1, 1)))
_register("legendre_polynomial_p", functools.partial(_by_recurrence, _legendre, (1, 0)))
