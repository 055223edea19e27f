"""Entries that the converter refuses in part or whole, in which dtypes and why."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """A dtype that is not named refuses no sample."""

    reason: str
    dtypes: tuple[str, ...]


_HALVES = ("f32", "f16", "bf16")
_REAL = (*_HALVES, "int32", "int64", "bool")
_COMPLEX32 = "the result is complex32, which Core AI does not have"
_TRAINING = "training mode moves the running statistics; the error says `model.eval()`"

KNOWN_REFUSALS: dict[str, Refusal] = {
    "_batch_norm_with_update": Refusal(_TRAINING, _HALVES),
    "_native_batch_norm_legit": Refusal(_TRAINING, _HALVES),
    "chalf": Refusal(_COMPLEX32, _REAL),
    "complex": Refusal(_COMPLEX32, ("f16",)),
    "native_batch_norm": Refusal(_TRAINING, _HALVES),
    "nn.functional.batch_norm": Refusal(_TRAINING, _HALVES),
    "view_as_complex": Refusal(_COMPLEX32, ("f16",)),
}
