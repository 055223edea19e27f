"""Turn samples into modules: tensor arguments become inputs, others become constants."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree


@dataclass(frozen=True)
class _Number:
    """A rank-0 tensor that the model creates."""

    value: Any
    dtype: torch.dtype

    def made(self) -> torch.Tensor:
        return torch.tensor(self.value, dtype=self.dtype)


@dataclass(frozen=True)
class _View:
    """A view of a given tensor."""

    size: tuple[int, ...]
    stride: tuple[int, ...]
    offset: int

    def of(self, memory: torch.Tensor) -> torch.Tensor:
        return memory.as_strided(self.size, self.stride, self.offset)


@dataclass(frozen=True)
class Call:
    """One call of the op of an entry; tensors are stored separately from other arguments."""

    dtype: str
    index: int  # among the samples of that dtype
    op: Callable[..., Any]
    tensors: tuple[torch.Tensor, ...]
    leaves: tuple[Any, ...]
    spec: Any

    @classmethod
    def of(cls, dtype: str, index: int, op: Callable[..., Any], sample: Any) -> Call:
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = tuple(_plain(x) for x in leaves if isinstance(x, torch.Tensor))
        return cls(dtype, index, op, tensors, tuple(leaves), spec)

    def with_numbers(self) -> Call:
        """Return the same call with rank-0 tensors as constants of the model."""
        leaves = tuple(
            _Number(x.item(), x.dtype) if isinstance(x, torch.Tensor) and not x.dim() else x
            for x in self.leaves
        )
        return replace(self, leaves=leaves, tensors=tuple(t for t in self.tensors if t.dim()))

    def with_views(self) -> Call:
        """Return the same call with the base of each view as the input."""
        given = [x for x in self.leaves if isinstance(x, torch.Tensor)]
        memory = tuple(x.new_empty(0).set_(x.untyped_storage()).clone() for x in given)
        views = tuple(
            _View(tuple(x.shape), x.stride(), x.storage_offset())
            if isinstance(x, torch.Tensor)
            else x
            for x in self.leaves
        )
        return replace(self, leaves=views, tensors=memory)

    def in_whole_numbers(self) -> Call:
        """Return the same call with integers from -2 to 2 for all real values."""
        return replace(self, tensors=tuple(map(_whole, self.tensors)))

    @property
    def place(self) -> str:
        """Return the name of its module in a batch."""
        return f"{self.dtype}_{self.index}"

    def __call__(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensor results; numbers become tensors, as in a program."""
        feed = iter(tensors)
        leaves = [_fed(x, feed) for x in self.leaves]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        results = [_as_tensor(r) for r in pytree.tree_leaves(self.op(*args, **kwargs))]
        return [r for r in results if r is not None]

    def eager(self) -> list[torch.Tensor]:
        """Return the results of torch on copies, because some ops write to their arguments."""
        with torch.no_grad():
            return self(*(t.clone() for t in self.tensors))


def _fed(leaf: Any, feed: Iterator[torch.Tensor]) -> Any:
    if isinstance(leaf, _View):
        return leaf.of(next(feed))
    if isinstance(leaf, _Number):
        return leaf.made()
    return next(feed) if isinstance(leaf, torch.Tensor) else leaf


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor as the runtime takes it: without gradient, lazy bits or strides."""
    if tensor.layout is not torch.strided or tensor.is_nested:
        return tensor
    tensor = tensor.detach().resolve_conj().resolve_neg()
    return tensor.clone(memory_format=torch.contiguous_format)


def _whole(tensor: torch.Tensor) -> torch.Tensor:
    """Keep infinities, because masks use them."""
    if not tensor.is_floating_point():
        return tensor
    return tensor.round().clamp(-2, 2).where(tensor.isfinite(), tensor)


def _as_tensor(result: Any) -> torch.Tensor | None:
    if isinstance(result, torch.Tensor):
        return result
    kinds = (
        (bool | torch.SymBool, torch.bool),
        (int | torch.SymInt, torch.int64),
        (float | torch.SymFloat, torch.float32),
    )
    for types, dtype in kinds:
        if isinstance(result, types):
            return torch.scalar_tensor(result, dtype=dtype)
    return None


class _One(torch.nn.Module):
    def __init__(self, call: Call):
        super().__init__()
        self.call_ = call

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        return self.call_(*tensors)


class Batch(torch.nn.Module):
    """Several calls, each in a submodule, so that an error names the call."""

    def __init__(self, calls: Sequence[Call]):
        super().__init__()
        self.calls = list(calls)
        for call in calls:
            self.add_module(call.place, _One(call))

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        return tuple(t for call in self.calls for t in call.tensors)

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        results, at = [], 0
        for call, module in zip(self.calls, self.children(), strict=True):
            results += module(*tensors[at : at + len(call.tensors)])
            at += len(call.tensors)
        return results
