"""Run a model once in eager torch, and leave it as it was."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from ..torch_compat import pytree


def eager_failure(
    model: torch.nn.Module, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> Exception | None:
    """Return the exception that the model raises on these inputs, or None.

    Inputs are copied. Buffers, attributes and the random numbers of the CPU are restored.
    """
    given = _copied((tuple(args or ()), dict(kwargs or {})))
    with torch.no_grad(), torch.random.fork_rng(devices=[]), _restored(model):
        try:
            model(*given[0], **given[1])
        except Exception as failure:
            return failure
    return None


def _copied(arguments: Any) -> Any:
    """Copy each tensor once, so that inputs that are one tensor stay one."""
    copies: dict[int, torch.Tensor] = {}

    def copy(leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        return copies.setdefault(id(leaf), leaf.detach().clone())

    return pytree.tree_map(copy, arguments)


@contextmanager
def _restored(model: torch.nn.Module) -> Iterator[None]:
    """Undo writes to buffers, and assignments to attributes and buffers of the modules."""
    values = [(buffer, buffer.detach().clone()) for buffer in model.buffers()]
    namespaces = [
        (namespace, dict(namespace))
        for module in model.modules()
        for namespace in (vars(module), module._buffers)
    ]
    try:
        yield
    finally:
        for namespace, before in namespaces:
            for name in [n for n in namespace if n not in before]:
                del namespace[name]
            changed = {n: v for n, v in before.items() if namespace.get(n, before) is not v}
            namespace.update(changed)
        for buffer, value in values:
            if not _same(buffer, value):
                buffer.detach().copy_(value)


def _same(one: torch.Tensor, other: torch.Tensor) -> bool:
    try:
        return bool(torch.equal(one, other))
    except (NotImplementedError, RuntimeError):  # a meta tensor has no values to restore
        return True
