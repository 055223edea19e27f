"""The states of one sequence: keys, values, and states of a fixed size."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from ...asset.array_memory import memory_of
from ...asset.worker import to_numpy
from ...numerics.arrays import tensor
from .metadata import KEYS, VALUES


@dataclass(frozen=True)
class LayerShape:
    """Sizes of the keys and values of one layer."""

    key_heads: int
    key_width: int
    value_heads: int
    value_width: int

    @classmethod
    def of(cls, keys: Tensor, values: Tensor) -> LayerShape:
        """Read the sizes from tensors `[batch, heads, length, width]`."""
        return cls(keys.shape[1], keys.shape[3], values.shape[1], values.shape[3])


class Storage(Protocol):
    """What stores states in the form that a function takes: a runtime."""

    def store(self, content: Tensor) -> Any:
        """Return the content of a state."""

    def with_content(self, keys: Tensor, values: Tensor, fixed: dict[str, Any]) -> States:
        """Return states with these keys and values."""


class States:
    """Keys and values `[layers, 1, heads, slots, width]`, updated in place by the function.

    `fixed` are the states whose size does not depend on the tokens. The slots of arrays of the
    runtime are the last axis of the keys if `keys_are_swapped`.
    """

    def __init__(
        self,
        keys: Any,
        values: Any,
        fixed: Mapping[str, Any] | None = None,
        *,
        keys_are_swapped: bool = False,
    ) -> None:
        self.fixed = dict(fixed or {})
        self.arrays: dict[str, Any] = {KEYS: keys, VALUES: values, **self.fixed}
        self.keys_are_swapped = keys_are_swapped

    @property
    def slots(self) -> int:
        """Return the number of slots."""
        return int(self.arrays[VALUES].shape[3])

    def content(self, name: str) -> Tensor:
        """Return a copy of one state as a tensor."""
        return self._standard(name, as_tensor(self.arrays[name]))

    def resized(self, runtime: Storage, slots: int, used: int) -> States:
        """Return states with other slots that contain the first `used` rows."""
        new = []
        for name in (KEYS, VALUES):
            old = self.content(name)
            grown = old.new_zeros(*old.shape[:3], slots, old.shape[4])
            grown[:, :, :, :used] = old[:, :, :, :used]
            new.append(grown)
        return self._stored(runtime, *new)

    def copy(self, runtime: Storage) -> States:
        """Return an independent copy."""
        return self._stored(runtime, self.content(KEYS), self.content(VALUES))

    def write(self, outputs: Mapping[str, Tensor], total: int) -> None:
        """Write the rows that a function returned to the last of `total` slots.

        The output `keyCache[2]` contains the rows of the keys from layer 2 on.
        """
        for output, rows in outputs.items():
            found = re.fullmatch(r"(\w+)\[(\d+)\]", output)
            if found is not None:
                name, layer = found[1], int(found[2])
                count, _, heads, new, width = rows.shape
                state = self._standard(name, memory_of(self.arrays[name]))
                state[layer : layer + count, :, :heads, total - new : total, :width] = rows

    def _standard(self, name: str, value: Tensor) -> Tensor:
        return value.mT if self.keys_are_swapped and name == KEYS else value

    def _stored(self, runtime: Storage, keys: Tensor, values: Tensor) -> States:
        fixed = {name: runtime.store(self.content(name)) for name in self.fixed}
        return runtime.with_content(keys, values, fixed)


def as_tensor(stored: Any) -> Tensor:
    """Return a copy of a stored state as a tensor."""
    return stored.clone() if isinstance(stored, Tensor) else tensor(to_numpy(stored))
