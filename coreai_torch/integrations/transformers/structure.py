"""Names of the tensors of a call, and what of its result a program does not return."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import torch
from transformers.exporters.utils import get_leaf_tensors

from ...errors import ConversionError
from ...torch_compat import pytree

KEY = "transformers.call"  # in the metadata of an asset

Constant = None | bool | int | float | str


@dataclass(frozen=True)
class Result:
    """A tensor that the model returns: an output of the program, an argument, or an earlier one."""

    output: str = ""
    argument: str = ""
    same: int = -1  # the index of the earlier one
    dtype: str = ""  # of the model; a program has no 64-bit numbers
    number: bool = False  # a size that the model returns as a number


@dataclass(frozen=True)
class Structure:
    """The tensors of a call: arguments by name, and results in order."""

    inputs: tuple[str, ...]
    states: tuple[str, ...]
    results: tuple[Result, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain data for the metadata of an asset."""
        return asdict(self)

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> Structure:
        """Return the structure that `as_dict` described."""
        results = tuple(Result(**one) for one in data["results"])
        return cls(tuple(data["inputs"]), tuple(data["states"]), results)


def named_tensors(values: Any) -> dict[str, torch.Tensor]:
    """Return the tensors in a nested value by path: `past_key_values.0.keys`.

    The list `layers` of a cache is left out of the paths.
    """
    found: dict[str, torch.Tensor] = get_leaf_tensors(values)
    short = [re.sub(r"(?<=\.)layers\.(?=\d)", "", name) for name in found]
    names = short if len(set(short)) == len(short) else list(found)
    return dict(zip(names, found.values(), strict=True))


def names_of_leaves(values: Any) -> list[str]:
    """Return the name of each leaf of a tree; numbers and other constants have none."""
    waiting: dict[int, list[str]] = {}
    for name, tensor in named_tensors(values).items():
        waiting.setdefault(id(tensor), []).append(name)
    leaves = pytree.tree_leaves(values)
    return [waiting[id(leaf)].pop(0) if id(leaf) in waiting else "" for leaf in leaves]


class Recorder:
    """Takes the tensors out of the result of a forward, and remembers the rest."""

    def __init__(self) -> None:
        self.spec: str = ""
        self.constants: list[list[Any]] = []
        self.results: list[Result] = []

    def tensors_of(self, outputs: Any, arguments: Mapping[int, str]) -> dict[str, Any]:
        """Return the tensors that a program has to return by name.

        `arguments` has the names of the argument tensors by `id`.
        """
        leaves, spec = pytree.tree_flatten(outputs)
        self.spec, self.constants, self.results = pytree.treespec_dumps(spec), [], []
        names, seen, given = names_of_leaves(outputs), dict[int, int](), dict[str, Any]()
        for index, (leaf, name) in enumerate(zip(leaves, names, strict=True)):
            leaf = _as_constant(leaf)
            if _is_constant(leaf):
                self.constants.append([index, leaf])
                continue
            result = self._result(leaf, name or f"number.{index}", arguments, seen)
            seen.setdefault(id(leaf), len(self.results))
            if result.output:
                given[result.output] = leaf
            self.results.append(result)
        return given

    def _result(
        self, leaf: Any, name: str, arguments: Mapping[int, str], seen: Mapping[int, int]
    ) -> Result:
        if not isinstance(leaf, torch.Tensor | torch.SymInt | torch.SymFloat | torch.SymBool):
            raise ConversionError(
                f"the model returns {leaf!r}, but a program returns tensors and numbers only\n"
                "  try   change the model so that it returns a tensor"
            )
        if not isinstance(leaf, torch.Tensor):
            return Result(output=name, number=True)
        if id(leaf) in arguments:
            return Result(argument=arguments[id(leaf)])
        if id(leaf) in seen:
            return Result(same=seen[id(leaf)])
        output = f"output.{name}" if name[0].isdigit() else name
        return Result(output=output, dtype=str(leaf.dtype).removeprefix("torch."))


def _as_constant(leaf: Any) -> Any:
    """Return the value of a symbolic number that torch fixed."""
    if isinstance(leaf, torch.SymInt):
        value = leaf.node.maybe_as_int()
        return leaf if value is None else value
    return leaf


def _is_constant(leaf: Any) -> bool:
    return leaf is None or type(leaf) in (bool, int, float, str)
