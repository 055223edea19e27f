"""Entries that the converter rejects partly or completely: dtypes and reasons."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Refusal:
    """No sample of a dtype that is not listed is rejected."""

    reason: str
    dtypes: tuple[str, ...]


_HALVES = ("f32", "f16", "bf16")
_REAL = (*_HALVES, "int32", "int64", "bool")
_COMPLEX32 = "the result is complex32, which Core AI does not have"
_TRAINING = "training mode updates the running statistics; the error suggests `model.eval()`"
_FILLED = "fills masked elements with a limit of int64, which does not fit 32 bits"

KNOWN_REFUSALS: dict[str, Refusal] = {
    "_batch_norm_with_update": Refusal(_TRAINING, _HALVES),
    "_native_batch_norm_legit": Refusal(_TRAINING, _HALVES),
    "chalf": Refusal(_COMPLEX32, _REAL),
    "complex": Refusal(_COMPLEX32, ("f16",)),
    "hash_tensor": Refusal("a 64-bit hash; devices have 32 bits", _REAL),
    "masked.amax": Refusal(_FILLED, ("int64",)),
    "masked.amin": Refusal(_FILLED, ("int64",)),
    "masked.argmax": Refusal(_FILLED, ("int64",)),
    "masked.argmin": Refusal(_FILLED, ("int64",)),
    "masked.logsumexp": Refusal(_FILLED, ("int64",)),
    "native_batch_norm": Refusal(_TRAINING, _HALVES),
    "nn.functional.batch_norm": Refusal(_TRAINING, _HALVES),
    "nn.functional.instance_norm": Refusal(_TRAINING, _HALVES),
    "unique_consecutive": Refusal("torch.export reports other sizes than eager with dim=-1", _REAL),
    "unravel_index": Refusal("a size of 2**63 - 1, which does not fit 32 bits", ("int64",)),
    "view_as_complex": Refusal(_COMPLEX32, ("f16",)),
}
