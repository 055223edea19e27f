"""Lower Bessel functions of orders 0 and 1, and the Airy function.

All are formulas in torch: one fit near zero, one for large arguments. The polynomials of the Bessel
functions were fitted for this project: near-minimax on the interval in their comment, with an error
of a few float32 units in the last place. The fits of the Airy function are those of S. Moshier's
Cephes library.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from ...lowering import case, decomposes
from ...lowering.cases import T, bf16, f16, f32, i32
from ...torch_compat import aten
from .._lib.approximation import in_float32, polynomial

_INF, _NAN = float("inf"), float("nan")
_EDGES = f32(10, values=(0.0, -0.0, 1.0, -1.0, 2.0, 8.0, 8.1, -20.0, 40.0, _NAN))
_ALIKE: list[T] = [_EDGES, f32(2, 40), f32(60, low=-20, high=20), i32(5), f32()]
_CASES = [case(t) for t in _ALIKE]
_TAIL = "torch vectorizes by eight and computes the remainder in float16: 0.0024 off"
_NARROW = [case(f16(9), one_size=_TAIL), case(bf16(9))]

# exp(-x) I0(x), and exp(-x) I1(x) / x, in x / 4 - 1 for x from 0 to 8.
_I0E_NEAR = (
    0.207001921, -0.113004123, 0.0945155475, -0.0890531991, 0.0873472953, -0.0848278182,
    0.0792213013, -0.0703820352, 0.0571118621, -0.0402424033, 0.0290835299, -0.0246937723,
    0.0139645488, -0.00171341825, 0.00157555718, -0.00436732569, 0.00189432223,
)  # fmt: skip
_I1E_NEAR = (
    0.0446877099, -0.0611243081, 0.0680575887, -0.0684840366, 0.0637679391, -0.0552601501,
    0.0446671243, -0.0337949031, 0.0237323263, -0.0151672271, 0.00943228148, -0.00627549095,
    0.00328453404, -0.000782789413, 0.000458867388, -0.000727186742, 0.000295533883,
)  # fmt: skip
# exp(-x) sqrt(x) I(x) in 16 / x - 1 for x >= 8.
_I0E_FAR = (
    0.402176509, 0.00336055585, 0.000136216843, 1.11115255e-5, 1.47679211e-6, 3.63171031e-7,
    1.08298983e-7,
)  # fmt: skip
_I1E_FAR = (
    0.389398459, -0.00974958153, -0.000219236669, -1.50033231e-5, -1.8267145e-6, -4.21555437e-7,
    -1.22124985e-7,
)  # fmt: skip


def _scaled_i(
    magnitude: torch.Tensor, near: Sequence[float], far: Sequence[float]
) -> tuple[torch.Tensor, torch.Tensor]:
    return polynomial(magnitude / 4 - 1, near), polynomial(16 / magnitude - 1, far) / torch.sqrt(
        magnitude
    )


def _i0e(magnitude: torch.Tensor) -> torch.Tensor:
    near, far = _scaled_i(magnitude, _I0E_NEAR, _I0E_FAR)
    return torch.where(magnitude <= 8, near, far)


def _i1e(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs()
    near, far = _scaled_i(magnitude, _I1E_NEAR, _I1E_FAR)
    return torch.where(magnitude <= 8, x * near, torch.where(x < 0, -far, far))


_LARGE = case(f32(4, values=(100.0, -250.0, 89.5, 3.0)))  # i0 is infinite in float32


@decomposes(aten.special_i0e.default, cases=[*_CASES, *_NARROW, _LARGE])
@in_float32
def i0e(x: torch.Tensor) -> torch.Tensor:
    return _i0e(x.abs())


@decomposes(aten.i0.default, cases=[*_CASES, *_NARROW])
@decomposes(aten.special_modified_bessel_i0.default, cases=_CASES)
@in_float32
def i0(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * _i0e(x.abs())


@decomposes(aten.special_i1e.default, cases=_CASES)
@in_float32
def i1e(x: torch.Tensor) -> torch.Tensor:
    return _i1e(x)


@decomposes(aten.special_i1.default, aten.special_modified_bessel_i1.default, cases=_CASES)
@in_float32
def i1(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x.abs()) * _i1e(x)


# I0(x), I1(x) / x, K0(x) + log(x / 2) I0(x) and x (K1(x) - log(x / 2) I1(x)), in x^2 / 2 - 1
# for x from 0 to 2.
_I0_NEAR = (
    1.56608293, 0.635861728, 0.0735898502, 0.00392856492, 0.000119869234, 2.35807e-6,
)  # fmt: skip
_I1_NEAR = (
    0.635861728, 0.147179737, 0.011785694, 0.000479282732, 1.17913321e-5, 1.9420412e-7,
)  # fmt: skip
_K0_NEAR = (
    -0.303620771, 0.340497321, 0.0717769761, 0.00505339227, 0.000182896968, 4.05550013e-6,
)  # fmt: skip
_K1_NEAR = (
    0.885088266, -0.332240956, -0.24383813, -0.0278542301, -0.00138423116, -3.89322399e-5,
)  # fmt: skip
# exp(x) sqrt(x) K(x) in 4 / x - 1 for x >= 2.
_K0_FAR = (
    1.21859534, -0.0310714479, 0.00303288628, -0.00047995238, 9.96332931e-5, -2.40971798e-5,
    6.7498384e-6, -2.97762074e-6, 1.05168567e-6,
)  # fmt: skip
_K1_FAR = (
    1.36315189, 0.103349721, -0.00556672338, 0.000735942321, -0.000139675715, 3.20839872e-5,
    -8.66435023e-6, 3.66839412e-6, -1.27062105e-6,
)  # fmt: skip


def _k0(x: torch.Tensor, *, scaled: bool) -> torch.Tensor:
    square, decay = x * x / 2 - 1, torch.exp(-x)
    near = polynomial(square, _K0_NEAR) - torch.log(x / 2) * polynomial(square, _I0_NEAR)
    far = polynomial(4 / x - 1, _K0_FAR) / torch.sqrt(x)
    return (
        torch.where(x <= 2, near / decay, far) if scaled else torch.where(x <= 2, near, far * decay)
    )


def _k1(x: torch.Tensor, *, scaled: bool) -> torch.Tensor:
    square, decay = x * x / 2 - 1, torch.exp(-x)
    logarithmic = torch.log(x / 2) * x * polynomial(square, _I1_NEAR)
    near = polynomial(square, _K1_NEAR) / x + logarithmic
    far = polynomial(4 / x - 1, _K1_FAR) / torch.sqrt(x)
    return (
        torch.where(x <= 2, near / decay, far) if scaled else torch.where(x <= 2, near, far * decay)
    )


def _with_pole(x: torch.Tensor, at_zero: float, value: torch.Tensor) -> torch.Tensor:
    """Return `at_zero` for zero, where `x * log(x)` is NaN.

    Guard of the first kind. Negative arguments are NaN, as their logarithms are.
    """
    return torch.where(x == 0, at_zero, value)


@decomposes(aten.special_modified_bessel_k0.default, cases=_CASES)
@in_float32
def modified_bessel_k0(x: torch.Tensor) -> torch.Tensor:
    return _k0(x, scaled=False)


@decomposes(aten.special_modified_bessel_k1.default, cases=_CASES)
@in_float32
def modified_bessel_k1(x: torch.Tensor) -> torch.Tensor:
    return _with_pole(x, _INF, _k1(x, scaled=False))


@decomposes(aten.special_scaled_modified_bessel_k0.default, cases=_CASES)
@in_float32
def scaled_modified_bessel_k0(x: torch.Tensor) -> torch.Tensor:
    return _k0(x, scaled=True)


@decomposes(aten.special_scaled_modified_bessel_k1.default, cases=_CASES)
@in_float32
def scaled_modified_bessel_k1(x: torch.Tensor) -> torch.Tensor:
    return _with_pole(x, _INF, _k1(x, scaled=True))


# J0(x), J1(x) / x, Y0(x) - 2/pi log(x) J0(x) and (Y1(x) - 2/pi (log(x) J1(x) - 1/x)) / x, in
# x^2 / 32 - 1 for x from 0 to 8.
_J0 = (
    0.0458296649, 0.930301247, -0.648469283, -0.808088808, 1.03837946, -0.50746804, 0.145988848,
    -0.028472738, 0.00405807981, -0.000443513633, 3.84718271e-5, -2.74355484e-6, 1.60656814e-7,
)  # fmt: skip
_J1 = (
    -0.058143828, 0.0810586604, 0.151516652, -0.259594865, 0.158583762, -0.0547458181,
    0.0124568257, -0.00202904001, 0.000249472778, -2.4044752e-5, 1.88781176e-6, -1.20555975e-7,
)  # fmt: skip
_Y0 = (
    -0.382250654, -0.82843589, 1.64709648, 0.144126325, -1.07754773, 0.672177067, -0.21895747,
    0.0463670878, -0.0070257428, 0.000806091728, -7.27925126e-5, 5.37476418e-6, -3.24173931e-7,
)  # fmt: skip
_Y1 = (
    0.0707598588, -0.243377431, 0.0233675713, 0.235072092, -0.196398393, 0.078547869, -0.01962878,
    0.00342249182, -0.000443772742, 4.46722405e-5, -3.64060006e-6, 2.39905138e-7,
)  # fmt: skip
# The modulus factors of cosine and sine for x >= 8, in 128 / x^2 - 1; Q is divided by 8 / x.
_P0 = (
    0.999457274, -0.000536367164, 6.15035924e-6, -2.06509217e-7,
)  # fmt: skip
_Q0 = (
    -0.0155551132, 6.83314084e-5, -1.48289327e-6, 7.17210237e-8,
)  # fmt: skip
_P1 = (
    1.00090703, 0.000898804768, -7.97455719e-6, 2.46752682e-7,
)  # fmt: skip
_Q1 = (
    0.0467768732, -9.62144964e-5, 1.82771602e-6, -8.36516706e-8,
)  # fmt: skip


def _asymptotic(x: torch.Tensor, order: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return J and Y at large arguments, from sine and cosine of the argument itself.

    Subtracting an odd multiple of pi / 4 from x first would round: an error of 3e-6 at 40.
    """
    p, q = (_P0, _Q0) if order == 0 else (_P1, _Q1)
    scaled_argument = 128 / (x * x) - 1
    even, odd = polynomial(scaled_argument, p), polynomial(scaled_argument, q) * (8 / x)
    cosine, sine = torch.cos(x), torch.sin(x)
    if order == 0:
        cosine, sine = cosine + sine, sine - cosine
    else:
        cosine, sine = sine - cosine, -(cosine + sine)
    # sqrt(2 / (pi x)), times sqrt(1 / 2) from the shifted phase
    magnitude = torch.rsqrt(math.pi * x)
    return magnitude * (even * cosine - odd * sine), magnitude * (even * sine + odd * cosine)


def _near(x: torch.Tensor, coefficients: Sequence[float]) -> torch.Tensor:
    return polynomial(x * x / 32 - 1, coefficients)


@decomposes(aten.special_bessel_j0.default, cases=_CASES)
@in_float32
def bessel_j0(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs()
    return torch.where(magnitude <= 8, _near(magnitude, _J0), _asymptotic(magnitude, 0)[0])


@decomposes(aten.special_bessel_j1.default, cases=_CASES)
@in_float32
def bessel_j1(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs()
    value = torch.where(
        magnitude <= 8, magnitude * _near(magnitude, _J1), _asymptotic(magnitude, 1)[0]
    )
    return torch.where(x < 0, -value, value)


@decomposes(aten.special_bessel_y0.default, cases=_CASES)
@in_float32
def bessel_y0(x: torch.Tensor) -> torch.Tensor:
    near = _near(x, _Y0) + 2 / math.pi * torch.log(x) * _near(x, _J0)
    return torch.where(x <= 8, near, _asymptotic(x, 0)[1])


@decomposes(aten.special_bessel_y1.default, cases=_CASES)
@in_float32
def bessel_y1(x: torch.Tensor) -> torch.Tensor:
    singular = torch.log(x) * x * _near(x, _J1) - 1 / x
    near = x * _near(x, _Y1) + 2 / math.pi * singular
    return _with_pole(x, -_INF, torch.where(x <= 8, near, _asymptotic(x, 1)[1]))


@decomposes(aten.special_spherical_bessel_j0.default, cases=_CASES)
@in_float32
def spherical_bessel_j0(x: torch.Tensor) -> torch.Tensor:
    value = torch.where(x == 0, 1.0, torch.sin(x) / x)
    return torch.where(torch.isinf(x), 0.0, value)


_AT_ZERO, _SLOPE = 0.355028053887817239260, 0.258819403792806798405
_TERMS = 9  # up to 2.09, whose cube is 9.1, the next term of the series is below 1e-9

_DECAY = (
    (1.0, 14.0264691163389669, 70.5360906840444183, 159.756391350164414, 168.089224934630576,
     76.2796053615234517, 12.0075952739645806, 0.346538101525629032),
    (1.0, 14.0959135607834030, 71.4778400825575695, 164.234692871529702, 177.318088145400460,
     84.5138970141474627, 14.7562562584847203, 0.567594532638770213),
)  # fmt: skip
_SINE = (
    (-1.67787698489114634e-8, -2.77649108155232921e-6, -1.59276496239262096e-4,
     -4.06265923594885404e-3, -4.91900132609500318e-2, -0.279779981545119125,
     -0.693158036036933542, -0.626456544431912370, -0.131696323418331795),
    (4.51850092970580378e-7, 7.54720348287414297e-5, 4.40291641615211204e-3,
     0.115687173795188044, 1.47529146771666415, 9.18707402907259626, 26.7367040941499555,
     32.6825032795224614, 13.3560420706553244),
)  # fmt: skip
_COSINE = (
    (3.41551784765923618e-10, 8.11789239554389293e-8, 6.98793669997260967e-6,
     2.82851600836737020e-4, 5.85804113048388459e-3, 6.33888919628925491e-2, 0.351465656105547619,
     0.939169229816650230, 1.06579897599595591, 0.391103029615688277, 1.97339932091685679e-2),
    (4.91834570062930016e-9, 1.17166733214413522e-6, 1.01259085116509136e-4,
     4.12656523824222607e-3, 8.64580826352392193e-2, 0.954293611618961884, 5.47686069422975498,
     15.5646628932864613, 19.8352928718312140, 9.30892908077441974),
)  # fmt: skip
_ROOT = 1 / math.sqrt(math.pi)


def _rational(x: torch.Tensor, fit: tuple[tuple[float, ...], tuple[float, ...]]) -> torch.Tensor:
    return polynomial(x, fit[0]) / polynomial(x, fit[1])


def _series(x: torch.Tensor) -> torch.Tensor:
    even, odd = [1.0], [1.0]
    for k in range(1, _TERMS):
        even.append(even[-1] / ((3 * k - 1) * 3 * k))
        odd.append(odd[-1] / (3 * k * (3 * k + 1)))
    cube = x * x * x
    return _AT_ZERO * polynomial(cube, even) - _SLOPE * x * polynomial(cube, odd)


@decomposes(
    aten.special_airy_ai.default,
    cases=[
        case(f32(90, low=-9, high=9)),
        case(f32(9, values=(0.0, 2.09, -2.09, 50.0, 104.0, -30.0, _INF, -_INF, _NAN))),
        case(i32(5)),
        case(f32()),
    ],
)
@in_float32
def airy_ai(x: torch.Tensor) -> torch.Tensor:
    magnitude = x.abs().clamp(2.0, 1e12)
    exponent = 2 * magnitude * magnitude.sqrt() / 3
    inverse, fourth_root = 1 / exponent, magnitude.sqrt().sqrt()
    decay = _ROOT * _rational(inverse, _DECAY) / (2 * fourth_root * exponent.exp())
    phase, square = exponent + 0.25 * math.pi, inverse * inverse
    sine = phase.sin() * (1 + square * _rational(square, _SINE))
    oscillation = (
        _ROOT / fourth_root * (sine - phase.cos() * (inverse * _rational(square, _COSINE)))
    )
    series = torch.where(x.abs() < 2.1, _series(x.clamp(-2.1, 2.1)), x)  # NaN stays NaN
    value = torch.where(x < -2.09, oscillation, torch.where(x >= 2.09, decay, series))
    return torch.where(torch.isinf(x), _NAN, value)
