"""Run the model on another device without moving the model itself."""

from __future__ import annotations

from typing import Any

import torch

from ..interpreter.devices import full_precision
from ..torch_compat import TorchDispatchMode, pytree


def on_device(module: torch.nn.Module, device: str) -> DeviceReference | None:
    """Return a reference that runs on the device, or None for the CPU."""
    return None if device == "cpu" else DeviceReference(module, torch.device(device))


class _Redirect(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """Create tensors on another device where the program says `cpu`, as exported graphs do."""

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        given = kwargs or {}
        wanted = given.get("device")
        if wanted is not None and torch.device(wanted).type == "cpu":
            given = {**given, "device": self._device}
        return func(*args, **given)


class DeviceReference:
    """Calls a module with copies of its parameters and buffers on a device.

    Arguments are copied to the device; results, and the buffers and arguments that the module
    changed, are copied back. If the module cannot run there, for example because it contains CPU
    tensors that are not buffers, it runs on the CPU and `note` says so.
    """

    def __init__(self, module: torch.nn.Module, device: torch.device) -> None:
        self._module, self._device = module, device
        self._parameters = {n: p.to(device) for n, p in module.named_parameters()}
        self.note = ""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the module's result on the CPU."""
        if self.note:
            return self._module(*args, **kwargs)
        try:
            return self._call(args, kwargs)
        except (NotImplementedError, RuntimeError) as error:
            result = self._module(*args, **kwargs)  # raises what is wrong with the inputs
            (reason, *_) = str(error).splitlines() or [type(error).__name__]
            self.note = f"the model ran on the CPU, because on {self._device} it raised: {reason}"
            self._parameters = {}
            return result

    def _call(self, args: Any, kwargs: Any) -> Any:
        leaves, spec = pytree.tree_flatten((args, kwargs))
        moved = [_to(leaf, self._device) for leaf in leaves]
        buffers = {n: b.to(self._device, copy=True) for n, b in self._module.named_buffers()}
        tensors = {**self._parameters, **buffers}
        device = self._device
        with torch.device(device), _Redirect(device), full_precision(device):
            args, kwargs = pytree.tree_unflatten(moved, spec)
            result = torch.func.functional_call(self._module, tensors, args, kwargs)
        with torch.no_grad():
            for name, buffer in self._module.named_buffers():
                buffer.copy_(tensors[name])
            for leaf, copy in zip(leaves, moved, strict=True):
                if isinstance(leaf, torch.Tensor):
                    leaf.copy_(copy)
        return pytree.tree_map(lambda leaf: _to(leaf, torch.device("cpu")), result)


def _to(leaf: Any, device: torch.device) -> Any:
    return leaf.to(device, copy=True) if isinstance(leaf, torch.Tensor) else leaf
