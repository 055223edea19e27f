"""Marks what goes in and out of chosen submodules while they are traced."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import ExternalizeError
from .spec import Match


def _identity(x: torch.Tensor, tag: str) -> torch.Tensor:
    """The tensor itself; the tag says which side of which module it stands on."""
    return x.clone()


boundary = torch.library.custom_op("coreai_torch::boundary", _identity, mutates_args=())
boundary.register_fake(_identity)


@contextmanager
def marked(found: Sequence[Match]) -> Iterator[None]:
    """Hooks on the matching modules; gone again at the end, whatever happens."""
    with ExitStack() as stack:
        for number, match in enumerate(found):
            marker = _Marker(number, match)
            stack.enter_context(
                match.module.register_forward_pre_hook(marker.before, with_kwargs=True)
            )
            stack.enter_context(match.module.register_forward_hook(marker.after, with_kwargs=True))
        yield


@dataclass(frozen=True)
class _Given:
    """An argument on both sides of the boundary, and how often it was written to before."""

    name: str
    outside: torch.Tensor
    inside: torch.Tensor
    version: int


def _written_to(given: _Given) -> bool:
    """Whether the module wrote to its argument in place: then the write must get out.

    Strict export cannot tell; a program made by it is refused afterwards.
    """
    if torch.compiler.is_dynamo_compiling():
        return False
    return given.inside._version != given.version


class _Marker:
    """The two hooks of one module."""

    def __init__(self, number: int, match: Match) -> None:
        self._number, self._match = number, match
        self._signature = inspect.signature(match.module.forward)
        self._given: list[list[_Given]] = []  # one list per call that is going on

    def _tag(self, side: str, name: str) -> str:
        return f"{self._number} {side} {name}"  # no json: strict export traces this

    def before(self, module: Any, args: Any, kwargs: Any) -> tuple[Any, dict[str, Any]]:
        self._given.append([])
        bound = self._signature.bind(*args, **kwargs)
        for name, value in bound.arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                marked_values = (self._in(f"{name}_{i}", v) for i, v in enumerate(value))
                bound.arguments[name] = tuple(marked_values)
            elif kind is inspect.Parameter.VAR_KEYWORD:
                bound.arguments[name] = {k: self._in(k, v) for k, v in value.items()}
            else:
                bound.arguments[name] = self._in(name, value)
        return bound.args, bound.kwargs

    def _in(self, name: str, value: Any) -> Any:
        if value is None:
            return None
        if not isinstance(value, torch.Tensor):
            raise ExternalizeError(
                f"argument {name!r} of externalized module {self._match.path!r} "
                f"({type(self._match.module).__name__}) is {value!r} ({type(value).__name__}), "
                "not a tensor\n  try   keeping it as an attribute of the module, named in "
                "composite_attrs"
            )
        inside = boundary(value, self._tag("in", name))
        self._given[-1].append(_Given(name, value, inside, inside._version))
        return inside

    def after(self, module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        for given in self._given.pop():
            if _written_to(given):
                given.outside.copy_(boundary(given.inside, self._tag("out", given.name)))
        leaves, structure = pytree.tree_flatten(output)
        tensors = sum(isinstance(leaf, torch.Tensor) for leaf in leaves)
        names = iter(["output"] if tensors == 1 else [f"output_{i}" for i in range(tensors)])
        return pytree.tree_unflatten(
            [
                boundary(leaf, self._tag("out", next(names)))
                if isinstance(leaf, torch.Tensor)
                else leaf
                for leaf in leaves
            ],
            structure,
        )
