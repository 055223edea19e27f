"""One program of the table: a module with example inputs, made when it is needed."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

ROOT = Path(__file__).parents[2]
# Rows of the zoo and the helpers of the tests import each other by their own names.
PATHS = [str(ROOT / "tests"), str(ROOT / "tests" / "models")]
sys.path[:0] = [path for path in PATHS if path not in sys.path]

Made = tuple[nn.Module, tuple[Tensor, ...]]


@dataclass(frozen=True)
class Program:
    """A model or a call; `library` is imported before children are forked."""

    name: str
    family: str
    make: Callable[[], Made]
    library: str = ""
    half: bool = True  # also measured in float16

    def made(self, dtype: torch.dtype) -> Made:
        """Return the module and its inputs; equal calls give equal weights.

        Each input is a separate tensor: an export of the same tensor twice reads one input only.
        """
        torch.manual_seed(0)
        module, args = self.make()
        module = module.eval().to(dtype)
        cast = tuple(a.to(dtype if a.is_floating_point() else a.dtype, copy=True) for a in args)
        return module, cast


class Call(nn.Module):
    """A function as a module; named tuples, which cannot be stored, become tuples."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Tensor) -> Any:
        found = self.function(*args)
        return tuple(found) if isinstance(found, tuple) else found


class Tensors(nn.Module):
    """A model that is called with inputs by name, and returns its tensors as a list."""

    def __init__(self, model: nn.Module, names: tuple[str, ...], flags: dict[str, Any]) -> None:
        super().__init__()
        self.model, self.names, self.flags = model, names, flags

    def forward(self, *args: Tensor) -> list[Tensor]:
        found = self.model(**dict(zip(self.names, args, strict=True)), **self.flags)
        return [x for x in pytree.tree_leaves(found) if isinstance(x, Tensor)]
