"""Lower orthogonal polynomials with a tensor degree, by their three-term recurrences."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from ...lowering import case, decomposes
from ...lowering.cases import f32, i32
from ...torch_compat import aten, while_loop_op
from .._lib.approximation import in_float32
from .._lib.loops import copied

# Maps the step k, the argument, and the last two values to the next value.
Step = Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]
First = Callable[[Tensor], Tensor]  # the polynomial of degree 1
Polynomial = Callable[[Tensor, Tensor], Tensor]
# Maps the angle acos(x) and the degree to the value inside (-1, 1), and those at 1 and -1.
Kind = Callable[[Tensor, Tensor], tuple[Tensor, Tensor | float, Tensor]]

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
    @decomposes(target, cases=cases)
    @in_float32
    def evaluate(x: Tensor | float, n: Tensor | float) -> Tensor:
        given = (torch.as_tensor(v, dtype=torch.float32) for v in (x, n))
        x, n = torch.broadcast_tensors(*given)
        degree = n.trunc()
        value = torch.where(degree == 0, 1.0, polynomial(x, degree))
        return torch.where(degree < 0, 0.0, value)


def _by_recurrence(step: Step, first: First, x: Tensor, degree: Tensor) -> Tensor:
    """Run the recurrence from degree 1 to each element's degree; stop where the value is NaN."""

    def is_active(k: Tensor, last: Tensor, degree: Tensor) -> Tensor:
        return (k < degree) & (last == last)

    def goes_on(k: Tensor, last: Tensor, before: Tensor, x: Tensor, degree: Tensor) -> Tensor:
        return is_active(k, last, degree).any()

    def body(
        k: Tensor, last: Tensor, before: Tensor, x: Tensor, degree: Tensor
    ) -> tuple[Tensor, ...]:
        active = is_active(k, last, degree)
        value = torch.where(active, step(k, x, last, before), last)
        return k + 1, value, torch.where(active, last, before)

    start = torch.ones(()), copied(first(x)), copied(torch.where(x == x, 1.0, x))
    return while_loop_op(goes_on, body, start, (x, degree))[1]


def _hermite_h(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return 2 * x * last - 2 * k * before


def _hermite_he(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return x * last - k * before


def _laguerre(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + (1 - x)) * last - k * before) / (k + 1)


def _legendre(k: Tensor, x: Tensor, last: Tensor, before: Tensor) -> Tensor:
    return ((2 * k + 1) * x * last - k * before) / (k + 1)


def _parity(degree: Tensor) -> Tensor:
    """Return 1 for even degrees, -1 for odd ones."""
    return 1 - 2 * torch.fmod(degree, 2)


def _first_kind(angle: Tensor, degree: Tensor) -> tuple[Tensor, float, Tensor]:
    return (degree * angle).cos(), 1.0, _parity(degree)


def _second_kind(angle: Tensor, degree: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    above = degree + 1
    return (above * angle).sin() / angle.sin(), above, above * _parity(degree)


def _third_kind(angle: Tensor, degree: Tensor) -> tuple[Tensor, float, Tensor]:
    inside = ((degree + 0.5) * angle).cos() / (0.5 * angle).cos()
    return inside, 1.0, (2 * degree + 1) * _parity(degree)


def _fourth_kind(angle: Tensor, degree: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    inside = ((degree + 0.5) * angle).sin() / (0.5 * angle).sin()
    return inside, 2 * degree + 1, _parity(degree)


def _chebyshev(kind: Kind, first: First, high: int, x: Tensor, degree: Tensor) -> Tensor:
    """Return a Chebyshev polynomial; inside (-1, 1), degrees above `high` use the angle.

    Torch does the same; the recurrence would accumulate rounding errors.
    """
    by_angle, at_end = (x.abs() < 1) & (degree > high), x.abs() == 1
    inside, at_one, at_minus_one = kind(x.acos(), degree)
    looped = torch.where(by_angle | at_end, 1.0, degree)
    value = _by_recurrence(lambda k, x, last, before: 2 * x * last - before, first, x, looped)
    value = torch.where(by_angle, inside, value)
    return torch.where(at_end, torch.where(x < 0, at_minus_one, at_one), value)


def _shifted(polynomial: Polynomial, x: Tensor, degree: Tensor) -> Tensor:
    return polynomial(2 * x - 1, degree)


_CHEBYSHEV: dict[str, tuple[Kind, First, int]] = {
    "t": (_first_kind, lambda x: x, 6),
    "u": (_second_kind, lambda x: 2 * x, 8),
    "v": (_third_kind, lambda x: 2 * x - 1, 8),
    "w": (_fourth_kind, lambda x: 2 * x + 1, 8),
}
for _letter, _arguments in _CHEBYSHEV.items():
    _polynomial = functools.partial(_chebyshev, *_arguments)
    _register(f"chebyshev_polynomial_{_letter}", _polynomial)
    _register(f"shifted_chebyshev_polynomial_{_letter}", functools.partial(_shifted, _polynomial))
_register("hermite_polynomial_h", functools.partial(_by_recurrence, _hermite_h, lambda x: 2 * x))
_register("hermite_polynomial_he", functools.partial(_by_recurrence, _hermite_he, lambda x: x))
_register("laguerre_polynomial_l", functools.partial(_by_recurrence, _laguerre, lambda x: 1 - x))
_register("legendre_polynomial_p", functools.partial(_by_recurrence, _legendre, lambda x: x))
