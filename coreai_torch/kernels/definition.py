"""Read the parameter and return types of a kernel's reference."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, get_args, get_origin, get_type_hints

import torch

KINDS: dict[Any, str] = {torch.Tensor: "Tensor", int: "SymInt", float: "Scalar", bool: "bool"}
_POSITIONAL = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


class Returns(Enum):
    """The form in which a reference returns its results."""

    ONE = "torch.Tensor"
    LIST = "list[torch.Tensor]"
    TUPLE = "tuple[torch.Tensor, ...] of a known length"


@dataclass(frozen=True)
class Definition:
    """A torch reference and the types that it declares."""

    fn: Callable[..., Any]
    kinds: tuple[type, ...]
    defaults: tuple[Any, ...]  # of the last parameters
    returns: Returns

    def results(self, given: Any) -> list[torch.Tensor]:
        """Convert what the reference returned to a list."""
        return [given] if self.returns is Returns.ONE else list(given)

    def returned(self, results: Sequence[torch.Tensor]) -> Any:
        """Convert a list of results to the form that the reference declares."""
        if self.returns is Returns.ONE:
            return results[0]
        return tuple(results) if self.returns is Returns.TUPLE else list(results)

    def equals(self, other: Definition) -> bool:
        """Return whether two references have the same code and the same captured values."""
        mine, theirs = self.fn, other.fn
        if mine is theirs:
            return True
        codes = [getattr(fn, "__code__", fn) for fn in (mine, theirs)]
        return bool(codes[0] == codes[1]) and _captured(mine) == _captured(theirs)


def _captured(fn: Callable[..., Any]) -> list[int]:
    return [id(cell.cell_contents) for cell in getattr(fn, "__closure__", None) or ()]


def read(name: str, fn: Callable[..., Any], results: Sequence[str], inputs: Sequence[str]) -> Any:
    """Read the types of a reference and check them against the names of inputs and results."""
    if not callable(fn):
        raise TypeError(f"Metal kernel {name!r}: torch_defn is {fn!r}, not a function")
    try:
        hints = get_type_hints(fn)
    except NameError as cause:
        raise TypeError(f"Metal kernel {name!r}: torch_defn's annotations: {cause}") from cause
    parameters = list(inspect.signature(fn).parameters.values())
    kinds = tuple(_kind(name, p, hints) for p in parameters)
    if len(kinds) != len(inputs):
        raise ValueError(
            f"Metal kernel {name!r}: input_names has {len(inputs)} names, {list(inputs)}, but "
            f"torch_defn takes {len(kinds)} parameters: {[p.name for p in parameters]}\n"
            "  try   pass one name for each parameter, in this order"
        )
    defaults = tuple(p.default for p in parameters if p.default is not inspect.Parameter.empty)
    return Definition(fn, kinds, defaults, _returns(name, hints.get("return"), results))


def _kind(name: str, parameter: inspect.Parameter, hints: dict[str, Any]) -> type:
    kind = hints.get(parameter.name)
    if parameter.kind not in _POSITIONAL or kind not in KINDS:
        problem = "has no annotation" if kind is None else f"has the annotation {kind!r}"
        if parameter.kind not in _POSITIONAL:
            problem = f"is {parameter.kind.description}"
        raise TypeError(
            f"Metal kernel {name!r}: parameter {parameter.name!r} of torch_defn {problem}\n"
            "  try   annotate a positional parameter with torch.Tensor, int, float or bool"
        )
    return kind  # type: ignore[return-value]  # a key of KINDS, which are types


def _returns(name: str, hint: Any, results: Sequence[str]) -> Returns:
    parts = get_args(hint)
    if hint is torch.Tensor:
        form, count = Returns.ONE, 1
    elif get_origin(hint) is list and parts == (torch.Tensor,):
        form, count = Returns.LIST, len(results)
    elif get_origin(hint) is tuple and parts and all(p is torch.Tensor for p in parts):
        form, count = Returns.TUPLE, len(parts)
    else:
        problem = "no return annotation" if hint is None else f"the return annotation {hint!r}"
        raise TypeError(
            f"Metal kernel {name!r}: torch_defn has {problem}\n"
            "  try   annotate torch.Tensor, list[torch.Tensor], or a tuple of known length"
        )
    if count != len(results):
        raise ValueError(
            f"Metal kernel {name!r}: result_names has {len(results)} names, {list(results)}, "
            f"but torch_defn returns {count}\n  try   pass one name for each result"
        )
    return form
