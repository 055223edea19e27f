"""The constants of a program as buffers, so that `Module.to(device)` moves them."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ..asset.reading import Block, Op, Program

Memory = tuple[int, int, torch.dtype, torch.Size, tuple[int, ...]]


class Constants(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """One buffer for each constant; constants that share memory share a buffer.

    The entrypoints of an asset read the same weights from one mapped file, and would otherwise
    each copy them to the device.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], str] = {}
        known: dict[Memory, str] = {}
        for function in program.functions.values():
            for op in _constant_ops(function.body):
                value = op.attributes["value"]
                name = known.setdefault(_memory(value), f"constant_{len(known)}")
                self._places[function.name, op.results[0]] = name
                self.register_buffer(name, value, persistent=False)
        # A program without constants has a device as well.
        self.register_buffer("placeholder", torch.empty(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """The device of all constants."""
        device: torch.device = self.placeholder.device
        return device

    def value(self, function: str, op: Op) -> torch.Tensor:
        """Return the value of a constant op of a function."""
        value: torch.Tensor = self.get_buffer(self._places[function, op.results[0]])
        return value


def _memory(value: torch.Tensor) -> Memory:
    # Tensors without elements all have the address 0.
    address = value.data_ptr() if value.numel() else id(value)
    return address, value.numel(), value.dtype, value.shape, value.stride()


def _constant_ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        if op.name == "coreai.constant":
            yield op
        for region in op.regions:
            yield from _constant_ops(region)
