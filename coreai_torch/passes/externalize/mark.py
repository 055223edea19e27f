"""Mark the begin and end of the calls of chosen submodules in a trace."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ...errors import ExternalizeError
from ...fx.marks import boundary
from ...torch_compat import pytree
from .spec import Externalized


@contextmanager
def marked(found: Sequence[Externalized]) -> Iterator[None]:
    """Install hooks on the matching modules, and remove them at the end."""
    with ExitStack() as stack:
        for number, match in enumerate(found):
            marker, module = _Marker(number, match), match.module
            # These hooks run outside the hooks of the user: first before forward, last after it.
            before = module.register_forward_pre_hook(marker.before, prepend=True, with_kwargs=True)
            stack.enter_context(before)
            stack.enter_context(module.register_forward_hook(marker.after, with_kwargs=True))
        yield


class _Marker:
    """The two hooks of one module, without state, because dynamo traces branches."""

    def __init__(self, number: int, match: Externalized) -> None:
        self._number, self._match = number, match
        self._signature = inspect.signature(match.module.forward)

    def before(self, module: Any, args: Any, kwargs: Any) -> None:
        """Mark the begin of a call, with the arguments by name."""
        given = self._given(args, kwargs)
        for name, value in given:
            if not isinstance(value, torch.Tensor):
                raise ExternalizeError(
                    f"argument {name!r} of externalized module {self._match.path!r} "
                    f"({type(self._match.module).__name__}) is {value!r} "
                    f"({type(value).__name__}), not a tensor\n  try   keeping it as an attribute "
                    "of the module, named in composite_attrs"
                )
        self._mark("in", given)
        self._mark("own", _buffers(module))

    def after(self, module: Any, args: Any, kwargs: Any, output: Any) -> None:
        """Mark the end: buffers and arguments after the call, then the results."""
        given = self._given(args, kwargs)  # a hook of the user may have replaced them
        tensors = [(name, value) for name, value in given if isinstance(value, torch.Tensor)]
        self._mark("left", [*_buffers(module), *tensors])
        results = list(_tensors(output))
        names = ["output"] if len(results) == 1 else [f"output_{i}" for i in range(len(results))]
        self._mark("out", list(zip(names, results, strict=True)))

    def _mark(self, side: str, named: Sequence[tuple[str, torch.Tensor]]) -> None:
        names = [name.replace(" ", "_") for name, _ in named]
        # Plain joining, no json: dynamo traces this.
        boundary([tensor for _, tensor in named], " ".join([str(self._number), side, *names]))

    def _given(self, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
        """Return the arguments by name, in the order of the signature, without None."""
        given: list[tuple[str, Any]] = []
        for name, value in self._signature.bind(*args, **kwargs).arguments.items():
            kind = self._signature.parameters[name].kind
            if kind is inspect.Parameter.VAR_POSITIONAL:
                given.extend((f"{name}_{i}", part) for i, part in enumerate(value))
            elif kind is inspect.Parameter.VAR_KEYWORD:
                given.extend(value.items())
            else:
                given.append((name, value))
        return [(name, value) for name, value in given if value is not None]


def _buffers(module: Any) -> list[tuple[str, torch.Tensor]]:
    """Return the buffers of the module, whose values an earlier call may have changed."""
    if torch.compiler.is_dynamo_compiling():
        return []  # naming them would make each one an operand of the traced branch
    return list(module.named_buffers())


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in the result of a module: tuples, dictionaries, dataclasses."""
    for leaf in pytree.tree_leaves(output):
        if isinstance(leaf, torch.Tensor):
            yield leaf
        elif dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
            for field in dataclasses.fields(leaf):
                yield from _tensors(getattr(leaf, field.name))
