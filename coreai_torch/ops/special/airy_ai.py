"""Lower special_airy_ai: a power series near zero, asymptotic rational fits outside.

The rational fits are those of S. Moshier's Cephes library.
"""

from __future__ import annotations

import math

import torch

from ...lowering import case, decomposes
from ...lowering.cases import f32, i32
from ...torch_compat import aten
from .._lib.approximation import in_float32, polynomial

_INF, _NAN = float("inf"), float("nan")
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
