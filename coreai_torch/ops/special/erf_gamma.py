"""Lower erfc, erfcx, erfinv, ndtri, lgamma and digamma.

All are formulas in torch. The polynomials without a reference were fitted for this project:
near-minimax on the interval in their comment, with an error of at most two float32 units in the
last place.
"""

from __future__ import annotations

import math

import torch

from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i32
from ...torch_compat import aten
from .._lib.approximation import in_float32, polynomial

_INF, _NAN = float("inf"), float("nan")
_EDGES = f32(12, values=(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 3.0, -4.0, 9.0, _INF, -_INF, _NAN))
_ALIKE: list[T] = [f32(2, 40), f32(60, low=-9, high=9), f16(9), bf16(9), i32(5), f32()]
_CASES = [case(t) for t in (_EDGES, *_ALIKE)]

# erfcx(x) * (1 + 2 x) in t = 1 - 7.5 / (x + 3.75), for x from 0 to infinity.
_ERFCX = (
    1.237512631, -0.140240659, 0.003585438018, 0.08227843388, -0.1088045646, 0.09229069186,
    -0.05868825182, 0.02840942988, -0.009764691125, 0.001675734824, 0.0003253891605,
    -0.0002240522721, 2.363454958e-5,
)  # fmt: skip


def _erfcx_positive(x: torch.Tensor) -> torch.Tensor:
    """Return erfcx of non-negative arguments."""
    return polynomial(1 - 7.5 / (x + 3.75), _ERFCX) / (1 + 2 * x)


def _exp_of_square(x: torch.Tensor, sign: float) -> torch.Tensor:
    """Return exp(sign * x * x) for x < 32.

    Rounding the square would give a relative error of 5e-6 at 9.
    """
    coarse = torch.round(x * 64) / 64  # its square is exact
    return torch.exp(sign * coarse * coarse) * torch.exp(sign * (x - coarse) * (x + coarse))


@decomposes(
    aten.erfc.default,
    cases=[
        case(
            f32(90, low=-3, high=9),
            tolerance=(2e-6, 0.0),
            because="the tail is small and needs a relative tolerance",
        ),
        *_CASES,
    ],
)
@in_float32
def erfc(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs().clamp(max=20)  # erfc(20) is 0 in float32
    tail = _erfcx_positive(magnitude) * _exp_of_square(magnitude, -1)
    return torch.where(magnitude < 0.5, 1 - torch.erf(x), torch.where(x < 0, 2 - tail, tail))


@decomposes(
    aten.special_erfcx.default,
    cases=[
        *(case(t) for t in (_EDGES, f32(2, 40), i32(5), f32())),
        case(
            f32(40, low=-9, high=9),
            tolerance=(1e-5, 0.0),
            because="it grows exponentially for negative arguments",
        ),
    ],
)
@in_float32
def erfcx(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs()
    tail = _erfcx_positive(magnitude)
    return torch.where(x < 0, 2 * _exp_of_square(magnitude.clamp(max=12), 1) - tail, tail)


# M. Giles, "Approximating the erfinv function", in w - 2.5 and in sqrt(w) - 3.
_ERFINV_NEAR = (
    1.50140941, 0.246640727, -0.00417768164, -0.00125372503, 0.00021858087, -4.39150654e-06,
    -3.5233877e-06, 3.43273939e-07, 2.81022636e-08,
)  # fmt: skip
_ERFINV_FAR = (
    2.83297682, 1.00167406, 0.00943887047, -0.0076224613, 0.00573950773, -0.00367342844,
    0.00134934322, 0.000100950558, -0.000200214257,
)  # fmt: skip


@decomposes(
    aten.erfinv.default,
    cases=[
        case(f32(90, low=-1.0, high=1.0)),
        case(f32(6, values=(0.9999999, -0.9999999, 1e-8, 1.5, -1.5, 0.99))),
        case(i32(3, values=(0, 1, -1))),
        *(case(t) for t in (_EDGES, f16(9, low=-1.0, high=1.0), bf16(9, low=-1.0, high=1.0))),
    ],
)
@in_float32
def erfinv(x: torch.Tensor) -> torch.Tensor:
    w = -torch.log((1 - x) * (1 + x))
    near = polynomial(w - 2.5, _ERFINV_NEAR)
    far = polynomial(torch.sqrt(w) - 3, _ERFINV_FAR)
    return x * torch.where(x.abs() == 1, _INF, torch.where(w < 5, near, far))


# M. Wichura, algorithm AS 241 (PPND7): numerators and denominators by distance from 0.5.
_NDTRI = (
    ((3.3871327179, 50.434271938, 159.29113202, 59.109374720),
     (1.0, 17.895169469, 78.757757664, 67.187563600)),
    ((1.4234372777, 2.7568153900, 1.3067284816, 0.17023821103),
     (1.0, 0.73700164250, 0.12021132975)),
    ((6.6579051150, 3.0812263860, 0.42868294337, 0.017337203997),
     (1.0, 0.24197894225, 0.012258202635)),
)  # fmt: skip


@decomposes(
    aten.special_ndtri.default,
    cases=[
        case(f32(90, low=0.0, high=1.0)),
        case(f32(6, values=(1e-30, 1e-10, 1 - 1e-7, 0.0, 1.0, 1.5))),
        case(i32(2, values=(0, 1))),
        case(_EDGES),
    ],
)
@in_float32
def ndtri(p: torch.Tensor) -> torch.Tensor:
    middle, close, far = _NDTRI
    q = p - 0.5
    r = 0.180625 - q * q
    inner = q * polynomial(r, middle[0]) / polynomial(r, middle[1])
    depth = torch.sqrt(-torch.log(torch.where(q < 0, p, 1 - p)))
    outer = torch.where(
        depth <= 5,
        polynomial(depth - 1.6, close[0]) / polynomial(depth - 1.6, close[1]),
        polynomial(depth - 5, far[0]) / polynomial(depth - 5, far[1]),
    )
    outer = torch.where((p == 0) | (p == 1), _INF, outer)
    return torch.where(q.abs() <= 0.425, inner, torch.where(q < 0, -outer, outer))


# lgamma(x) / ((x - 1) (x - 2)) in x - 2, for x from 1 to 3: both zeros are factored out.
_LGAMMA = (
    0.4227843351, -0.1003176689, 0.03296517265, -0.01237692854, 0.004995238859,
    -0.002147659951, 0.0009338880862, -0.0003204031966, 0.000142624333, -0.0001583338466,
    7.334844066e-5,
)  # fmt: skip
_STIRLING = (1 / 12, -1 / 360, 1 / 1260, -1 / 1680)


def log_gamma(x: torch.Tensor) -> torch.Tensor:
    """Return lgamma of positive arguments."""
    near_one = x < 1
    zeros = torch.where(near_one, x * (x - 1), (x - 1) * (x - 2))
    near = zeros * polynomial(torch.where(near_one, x - 1, x - 2), _LGAMMA)
    near = torch.where(near_one, near - torch.log(x), near)
    inverse = 1 / x
    correction = inverse * polynomial(inverse * inverse, _STIRLING)
    far = (x - 0.5) * (torch.log(x) - 1) + (0.5 * math.log(2 * math.pi) - 0.5 + correction)
    return torch.where(x < 3, near, far)


@decomposes(
    aten.lgamma.default,
    cases=[
        *_CASES,
        case(f32(60, low=0.01, high=4.0)),
        case(f32(8, values=(1e-40, -1e-6, 1e-6, 35.5, 1e6, 3e37, 170.0, 2.9999))),
    ],
)
@in_float32
def lgamma(x: torch.Tensor) -> torch.Tensor:
    """Reflect negative arguments; the sine uses the distance to the nearest integer."""
    offset = x - torch.round(x)
    sine = torch.log(torch.sin(math.pi * offset.abs()))
    reflected = math.log(math.pi) - sine - log_gamma(1 - x)
    value = torch.where(x < 0, reflected, log_gamma(x))
    return torch.where((x == 0) | torch.isinf(x) | ((x < 0) & (offset == 0)), _INF, value)


_DIGAMMA = (-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132)


def _digamma(x: torch.Tensor) -> torch.Tensor:
    """Return digamma of positive arguments: five recurrence steps, then the asymptotic series."""
    steps = torch.zeros_like(x)
    for k in range(5):
        steps = steps + 1 / (x + k)
    is_small = x < 5
    high = torch.where(is_small, x + 5, x)
    inverse = 1 / (high * high)
    series = torch.log(high) - 0.5 / high + inverse * polynomial(inverse, _DIGAMMA)
    return torch.where(is_small, series - steps, series)


@decomposes(aten.digamma.default, cases=[*_CASES, case(f32(60, low=0.01, high=20.0))])
@in_float32
def digamma(x: torch.Tensor) -> torch.Tensor:
    offset = x - torch.round(x)
    reflected = _digamma(1 - x) - math.pi / torch.tan(math.pi * offset)
    reflected = torch.where(offset == 0, _NAN, reflected)
    value = torch.where(x < 0, reflected, _digamma(x))
    value = torch.where(x == 0, -1 / x, value)  # -inf for 0.0, +inf for -0.0
    return torch.where(x == _INF, _INF, value)
