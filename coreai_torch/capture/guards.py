"""Warn about sizes that the ranges of a program allow but its guards do not.

With `Dim.AUTO` torch adds guards silently: `y[:, y.shape[0] // 2] = 3` is exported with the guard
`size // 2 == 3` and a range from 2 on. `ExportedProgram.module()` checks the guards; a converted
program does not, and its results at another size would be wrong.
"""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch

from ..errors import GuardWarning, shortened
from ..torch_compat import guards_code, pytree

_TRIED = 16  # sizes of each symbol, from the smallest on
_SHOWN = 5
_LONGEST = 60  # characters of one guard


@dataclass(frozen=True)
class _Sized:
    """Stand in for a tensor in a guard, which reads sizes only."""

    sizes: tuple[int, ...]

    def size(self) -> tuple[int, ...]:
        return self.sizes


def warn(program: torch.export.ExportedProgram) -> None:
    """Warn about guards that fail at sizes within the program's ranges."""
    broken = [_readable(code) for code in _broken(program)]
    if not broken:
        return
    more = f", and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    warnings.warn(
        f"the program was exported for sizes with {', '.join(broken[:_SHOWN])}{more}; this is not "
        "checked at run time, and results at other sizes may be wrong\n"
        "  try   export with a named torch.export.Dim and its range: torch then rejects such sizes",
        GuardWarning,
        stacklevel=4,
    )


def _readable(code: str) -> str:
    return shortened(re.sub(r"L\['(\w+)'\]", r"\1", code), _LONGEST)


def _broken(program: torch.export.ExportedProgram) -> list[str]:
    # Only equalities fix a size; `size // 2 != 1` only excludes small sizes.
    codes = [code for code in guards_code(program) if " == " in code]
    if not codes or not program.range_constraints:
        return []
    try:
        compiled = {code: compile(code, "<guard>", "eval") for code in codes}
        trials = list(_trials(program))
        return [code for code in codes if any(_fails(compiled[code], at) for at in trials)]
    except Exception:  # the format of the guards may differ in another version of torch
        return []


def _fails(code: CodeType, inputs: Mapping[str, Any]) -> bool:
    try:
        return not eval(code, {"L": inputs, "math": math, "torch": torch})  # written by torch
    except ZeroDivisionError:  # `size % (size // 8) == 0` at size 7
        return True


def _trials(program: torch.export.ExportedProgram) -> Iterator[Mapping[str, Any]]:
    """Yield inputs by name: each symbol in turn at small sizes, the others as exported."""
    exported = _exported_sizes(program)
    for symbol in exported:
        range_ = program.range_constraints[symbol]
        smallest = max(int(range_.lower), 1)
        for size in range(smallest, smallest + _TRIED):
            if size <= range_.upper:
                yield _inputs(program, exported | {symbol: size})


def _exported_sizes(program: torch.export.ExportedProgram) -> dict[Any, int]:
    found = {}
    leaves = pytree.tree_leaves(program.example_inputs)
    for fake, leaf in zip(_user_inputs(program), leaves, strict=True):
        if isinstance(fake, torch.Tensor):
            for symbolic, size in zip(fake.shape, leaf.shape, strict=True):
                if isinstance(symbolic, torch.SymInt) and symbolic.node.expr.is_Symbol:
                    found[symbolic.node.expr] = int(size)
    return found


def _user_inputs(program: torch.export.ExportedProgram) -> list[Any]:
    placeholders = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    names = program.graph_signature.user_inputs
    return [placeholders[n] if isinstance(n, str) else n for n in names]


def _inputs(program: torch.export.ExportedProgram, sizes: Mapping[Any, int]) -> dict[str, Any]:
    leaves = [_substitute(value, sizes) for value in _user_inputs(program)]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    return dict(zip(signature.forward_arg_names, [*args, *kwargs.values()], strict=True))


def _substitute(value: Any, sizes: Mapping[Any, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _Sized(tuple(_substitute(size, sizes) for size in value.shape))
    if isinstance(value, torch.SymInt):
        return int(value.node.expr.subs(sizes))
    return value
