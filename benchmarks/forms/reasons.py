"""Why a program is longer than the published one, or has a foreign op: a guard that must stay.

`CONTRIBUTING.md` describes the kinds of guards. Each reason has a value for which the published
form is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping

_NEGATIVE = "first kind: `gather_nd` reads another row for the index -1"
_NAN_INDEX = "NaN passes through: `argmax` skips it, torch returns its index; two ops"
_NAN_ORDER = "NaN passes through: a descending sort puts it last, torch first; one op"
_FOLDED = "fourth kind: the GPU folds a floor division by 1 away; one op"
_TINY = "first kind: the short form gives 0 for 1e-8"
_SUMS = "sums in runs: 12,544 terms of 0.1, one by one, are off by 1e-4"
_NEAREST = "fourth kind: the GPU rejects `interpolate` nearest; a product for each axis"

REASONS: Mapping[str, str] = {
    "EfficientNet-B0": _SUMS,
    "timm EfficientNet-B0": _SUMS,
    "resize: nearest to 45": _NEAREST,
    "resize: nearest-exact to 45": _NEAREST,
    "select: argmax": _NAN_INDEX,
    "select: argmax of 32,000": _NAN_INDEX,
    "select: max with index": _NAN_INDEX,
    "select: topk": _NAN_ORDER + ". One sort instead of two, and a gather",
    "select: topk values": _NAN_ORDER,
    "index: x[i]": _NEGATIVE,
    "index: x[i, j]": _NEGATIVE,
    "index: x[arange, last]": _NEGATIVE,
    "index: x[i] = v": "first kind: `scatter_nd` crashes for the index -1",
    "index: constant table": "positions that are known never gather: one slice for each run",
    "elementwise: floor": _FOLDED,
    "elementwise: log1p": _TINY,
    "elementwise: expm1": _TINY,
    "elementwise: floor division": "first kind: 1.0 // 0.1 is 9.0, the short form gives 10.0",
    "elementwise: round to 2": "first kind, in float16: 1000 * 100 is infinite; two casts",
    "elementwise: to int and back": "first kind: the two casts are folded away, 1.5 stays 1.5",
}
