"""Compute the values of a model's constants while it is exported.

A model may read a padding from a buffer, or branch on a mask of ones that it created itself.
`torch.export` traces tensors without values and fails. `track_constants` computes the values next
to the trace, from the model's buffers and from Python numbers, never from the model's inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..torch_compat import disable_current_modes, pytree

_MAX_BUFFER = 1 << 16  # elements; larger buffers are not read
_MAX_BYTES = 1 << 30  # of all values; a mask of 4,096 x 4,096 tokens takes 64 MiB as float32
_READS = {
    Tensor.item,
    Tensor.tolist,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
}
_CREATES_FROM_NUMBERS = {
    torch.arange,
    torch.as_tensor,
    torch.div,
    torch.eye,
    torch.full,
    torch.linspace,
    torch.ones,
    torch.scalar_tensor,
    torch.tensor,
    torch.zeros,
}
_CREATES_LIKE = {
    torch.full_like,
    torch.ones_like,
    torch.zeros_like,
    Tensor.new_full,
    Tensor.new_ones,
    Tensor.new_tensor,
    Tensor.new_zeros,
}
# Parts of the names of functions whose result is uninitialized or random.
_NOT_DETERMINISTIC = (
    "bernoulli",
    "cauchy",
    "dropout",
    "empty",
    "exponential",
    "geometric",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "rrelu",
    "uniform",
)
# Functions whose sizes may be rank-0 tensors, which torch would read by itself.
_TAKES_SIZES = {
    torch.nn.functional.interpolate,
    torch.nn.functional.pad,
    Tensor.expand,
    Tensor.new_zeros,
    Tensor.reshape,
    Tensor.view,
    torch.full,
    torch.ones,
    torch.tensor,
    torch.zeros,
}
_NUMBER_DTYPES = (torch.bool, torch.int64, torch.float32)


class ConstantTracker(TorchFunctionMode):  # type: ignore[misc]
    """Store the value of each traced tensor that does not depend on an input."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._model = model
        self._buffers = {n: b for n, b in model.named_buffers() if b.numel() <= _MAX_BUFFER}
        self._values: dict[int, tuple[Tensor, Tensor]] = {}  # by id; the tensor is kept alive
        self._bytes_left = _MAX_BYTES
        self.read: set[str] = set()  # names of the buffers whose values were used

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__iter__:
            return iter(self.__torch_function__(torch.unbind, types, args))
        given = (args, kwargs or {})
        if func in _TAKES_SIZES:
            given = self._sizes_to_numbers(given)
        known = self._constant_arguments(func, given)
        if known is not None and func in _READS:
            with disable_current_modes():
                return func(*known[0], **known[1])
        result = func(*given[0], **given[1])
        if known is not None and not any(word in func.__name__ for word in _NOT_DETERMINISTIC):
            return self._track(func, known, result, _writes(func, given))
        if _writes(func, given):
            self._forget(given)
        return result

    def _value(self, tensor: Tensor) -> Tensor | None:
        if id(tensor) in self._values:
            return self._values[id(tensor)][1]
        for name, buffer in self._model.named_buffers():
            if buffer is tensor and name in self._buffers:
                self.read.add(name)
                with disable_current_modes():
                    value = self._buffers[name].detach().clone()
                self._values[id(tensor)] = (tensor, value)
                return value
        return None

    def _constant_arguments(self, func: Any, given: Any) -> Any:
        """Return the arguments with values in place of tensors, or None if a value is unknown."""
        leaves, spec = pytree.tree_flatten(given)
        if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in leaves):
            return None
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if not tensors and func not in _CREATES_FROM_NUMBERS:
            return None
        like = given[0][0] if func in _CREATES_LIKE else None
        values = [self._value(x) if isinstance(x, Tensor) else x for x in leaves]
        for n, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            if leaf is like and value is None and self._fits(leaf):
                values[n] = _uninitialized_like(leaf)
            if values[n] is None and leaf is not None:
                return None
        return pytree.tree_unflatten(values, spec)

    def _track(self, func: Any, known: Any, result: Any, writes: bool) -> Any:
        """Store the values of the result's tensors and return the result.

        A tensor whose sizes depend on values is replaced by a constant.
        """
        leaves, spec = pytree.tree_flatten(result)
        if not writes and not any(map(self._fits, leaves)):
            return result
        with disable_current_modes():
            values = pytree.tree_leaves(func(*known[0], **known[1]))
        for n, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            if not self._fits(leaf):
                continue
            self._bytes_left -= value.nbytes
            if not _is_static(leaf):
                leaves[n] = torch.tensor(value.tolist(), dtype=value.dtype).reshape(value.shape)
            self._values[id(leaves[n])] = (leaves[n], value)
        return pytree.tree_unflatten(leaves, spec)

    def _fits(self, leaf: Any) -> bool:
        if not isinstance(leaf, Tensor) or leaf.device.type != "cpu":
            return False
        return not _is_static(leaf) or leaf.nbytes <= self._bytes_left

    def _forget(self, given: Any) -> None:
        """Drop the values of the tensors written to, and of all tensors that share their memory."""
        for tensor in pytree.tree_leaves(given):
            stored = self._values.get(id(tensor))
            if stored is None:
                continue
            memory = stored[1].untyped_storage().data_ptr()
            for key, (_, value) in list(self._values.items()):
                if value.untyped_storage().data_ptr() == memory:
                    del self._values[key]

    def _sizes_to_numbers(self, given: Any) -> Any:
        """Replace constant rank-0 tensors in lists and among sizes by numbers of the same dtype."""
        first, *others = given[0] or (None,)
        rest = pytree.tree_map(self._number, (others, given[1]))
        if isinstance(first, list | tuple):
            first = pytree.tree_map(self._number, first)
        return (first, *rest[0]) if given[0] else (), rest[1]

    def _number(self, leaf: Any) -> Any:
        is_scalar = isinstance(leaf, Tensor) and leaf.dim() == 0 and leaf.dtype in _NUMBER_DTYPES
        value = self._value(leaf) if is_scalar else None
        if value is None:
            return leaf
        with disable_current_modes():
            return value.item()


def _uninitialized_like(tensor: Any) -> Tensor | None:
    """Return a tensor of the same dtype and sizes, or None if they are not static."""
    if not _is_static(tensor):
        return None
    with disable_current_modes():
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def _is_static(tensor: Tensor) -> bool:
    return all(isinstance(n, int) for n in tensor.shape)


def _writes(func: Any, given: Any) -> bool:
    name = func.__name__
    in_place = name.endswith("_") and not name.endswith("__")
    statistics = name in ("batch_norm", "instance_norm")  # running statistics in training mode
    assigned = name.startswith("__i") or name == "__setitem__" or "out" in given[1]
    return in_place or statistics or assigned


@contextmanager
def track_constants(model: torch.nn.Module) -> Iterator[ConstantTracker]:
    """Export within this context; the result is wrong if the model writes a buffer in `read`.

    Other threads are unaffected: torch keeps its stack of function modes per thread.
    """
    with ConstantTracker(model) as mode:
        yield mode
