"""Answers what a model asks of its own constants while it is exported.

A model may read a padding off a buffer, or branch on a mask of ones that it made itself.
`torch.export` sees tensors without values and gives up; here the values are computed beside it,
from the model's buffers and from what it makes of numbers alone, never from its inputs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from ..torch_compat import disable_current_modes, pytree

_LARGEST = 1 << 16  # elements of a tensor that is followed
_QUESTIONS = {
    Tensor.item,
    Tensor.tolist,
    Tensor.__bool__,
    Tensor.__int__,
    Tensor.__float__,
    Tensor.__index__,
}
_FROM_NUMBERS = {
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
_LIKE = {
    torch.full_like,
    torch.ones_like,
    torch.zeros_like,
    Tensor.new_full,
    Tensor.new_ones,
    Tensor.new_tensor,
    Tensor.new_zeros,
}
# Words in the names of what gives no value, or another one each time.
_UNDECIDED = (
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
# Whose sizes may be tensors of rank 0, which torch would read by itself.
_SIZED = {
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
_OF_NUMBERS = (torch.bool, torch.int64, torch.float32)


class KnownValues(TorchFunctionMode):  # type: ignore[misc]
    """Keeps the true value beside each tensor that no input has a part in."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self._model = model
        self._buffers = {n: b for n, b in model.named_buffers() if b.numel() <= _LARGEST}
        self._values: dict[int, tuple[Tensor, Tensor]] = {}  # by id; the tensor is kept alive
        self.read: set[str] = set()  # buffers

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func is Tensor.__iter__:
            return iter(self.__torch_function__(torch.unbind, types, args))
        given = (args, kwargs or {})
        if func in _SIZED:
            given = self._with_numbers(given)
        known = self._known(func, given)
        if known is not None and func in _QUESTIONS:
            with disable_current_modes():
                return func(*known[0], **known[1])
        result = func(*given[0], **given[1])
        if known is not None and not any(word in func.__name__ for word in _UNDECIDED):
            return self._followed(func, known, result, _writes(func, given))
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

    def _known(self, func: Any, given: Any) -> Any:
        """The arguments with values for tensors, or None if one has none."""
        leaves, spec = pytree.tree_flatten(given)
        if any(isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool) for x in leaves):
            return None
        tensors = [x for x in leaves if isinstance(x, Tensor)]
        if not tensors and func not in _FROM_NUMBERS:
            return None
        like = given[0][0] if func in _LIKE else None
        values = [self._value(x) if isinstance(x, Tensor) else x for x in leaves]
        for n, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            if leaf is like and value is None:
                values[n] = _any_like(leaf)
            if values[n] is None and leaf is not None:
                return None
        return pytree.tree_unflatten(values, spec)

    def _followed(self, func: Any, known: Any, result: Any, writes: bool) -> Any:
        """The result, its tensors with values; those whose sizes the values gave are constants."""
        leaves, spec = pytree.tree_flatten(result)
        if not writes and not any(_is_small(x) for x in leaves):
            return result
        with disable_current_modes():
            values = pytree.tree_leaves(func(*known[0], **known[1]))
        for n, (leaf, value) in enumerate(zip(leaves, values, strict=True)):
            if not _is_small(leaf):
                continue
            if not _is_static(leaf):
                leaves[n] = torch.tensor(value.tolist(), dtype=value.dtype).reshape(value.shape)
            self._values[id(leaves[n])] = (leaves[n], value)
        return pytree.tree_unflatten(leaves, spec)

    def _forget(self, given: Any) -> None:
        """What was written into, and all that shares its memory."""
        for tensor in pytree.tree_leaves(given):
            held = self._values.get(id(tensor))
            if held is None:
                continue
            memory = held[1].untyped_storage().data_ptr()
            for key, (_, value) in list(self._values.items()):
                if value.untyped_storage().data_ptr() == memory:
                    del self._values[key]

    def _with_numbers(self, given: Any) -> Any:
        """Tensors of rank 0 in lists and among sizes as numbers, which have the same dtype."""
        first, *others = given[0] or (None,)
        rest = pytree.tree_map(self._number, (others, given[1]))
        if isinstance(first, list | tuple):
            first = pytree.tree_map(self._number, first)
        return (first, *rest[0]) if given[0] else (), rest[1]

    def _number(self, leaf: Any) -> Any:
        is_one = isinstance(leaf, Tensor) and leaf.dim() == 0 and leaf.dtype in _OF_NUMBERS
        value = self._value(leaf) if is_one else None
        if value is None:
            return leaf
        with disable_current_modes():
            return value.item()


def _any_like(tensor: Any) -> Tensor | None:
    """A tensor of which only dtype and sizes count."""
    if not _is_small(tensor) or not _is_static(tensor):
        return None
    with disable_current_modes():
        return torch.empty(tensor.shape, dtype=tensor.dtype)


def _is_static(tensor: Tensor) -> bool:
    return all(isinstance(n, int) for n in tensor.shape)


def _is_small(leaf: Any) -> bool:
    if not isinstance(leaf, Tensor) or leaf.device.type != "cpu":
        return False
    return not _is_static(leaf) or leaf.numel() <= _LARGEST


def _writes(func: Any, given: Any) -> bool:
    name = func.__name__
    in_place = name.endswith("_") and not name.endswith("__")
    statistics = name in ("batch_norm", "instance_norm")  # of training
    assigned = name.startswith("__i") or name == "__setitem__" or "out" in given[1]
    return in_place or statistics or assigned


@contextmanager
def known_values(model: torch.nn.Module) -> Iterator[KnownValues]:
    """Export in here; a buffer that was `read` must not be one that the model writes."""
    with KnownValues(model) as mode:
        yield mode
