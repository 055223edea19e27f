"""Sizes that a program was not exported for, though its ranges seem to allow them.

With `Dim.AUTO` torch asks nobody: `y[:, y.shape[0] // 2] = 3` is exported with the guard
`size // 2 == 3` beside a size of 2 and more. `ExportedProgram.module()` looks at its guards; a
converted program does not, and at another size its results would be wrong.
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

from ..errors import GuardWarning
from ..torch_compat import guards_code, pytree

_TRIED = 16  # sizes of each symbol, from the least on
_SHOWN = 5


@dataclass(frozen=True)
class _Sized:
    """Stands for a tensor in a guard, which asks for sizes alone."""

    sizes: tuple[int, ...]

    def size(self) -> tuple[int, ...]:
        return self.sizes


def warn(program: torch.export.ExportedProgram) -> None:
    """Name the guards that fail at sizes within the program's ranges."""
    broken = [_readable(code) for code in _broken(program)]
    if not broken:
        return
    more = f", and {len(broken) - _SHOWN} more" if len(broken) > _SHOWN else ""
    warnings.warn(
        f"the program was exported for sizes with {', '.join(broken[:_SHOWN])}{more}; nothing "
        "checks that when it runs, and at other sizes its results may be wrong\n"
        "  try   torch.export.Dim with a name and a range, where torch refuses such sizes",
        GuardWarning,
        stacklevel=4,
    )


def _readable(code: str) -> str:
    return re.sub(r"L\['(\w+)'\]", r"\1", code)


def _broken(program: torch.export.ExportedProgram) -> list[str]:
    # Only these settle a size; `size // 2 != 1` tells that none of the small ones was tried.
    codes = [code for code in guards_code(program) if " == " in code]
    if not codes or not program.range_constraints:
        return []
    try:
        compiled = {code: compile(code, "<guard>", "eval") for code in codes}
        trials = list(_trials(program))
        return [code for code in codes if any(_fails(compiled[code], at) for at in trials)]
    except Exception:  # torch's own words, which another version may put differently
        return []


def _fails(code: CodeType, inputs: Mapping[str, Any]) -> bool:
    try:
        return not eval(code, {"L": inputs, "math": math, "torch": torch})  # torch wrote it
    except ZeroDivisionError:  # `size % (size // 8) == 0` of 7
        return True


def _trials(program: torch.export.ExportedProgram) -> Iterator[Mapping[str, Any]]:
    """Inputs by name: one symbol after the other at small sizes, the rest as exported."""
    exported = _exported_sizes(program)
    for symbol in exported:
        range_ = program.range_constraints[symbol]
        least = max(int(range_.lower), 1)
        for extent in range(least, least + _TRIED):
            if extent <= range_.upper:
                yield _inputs(program, exported | {symbol: extent})


def _exported_sizes(program: torch.export.ExportedProgram) -> dict[Any, int]:
    found = {}
    leaves = pytree.tree_leaves(program.example_inputs)
    for promised, leaf in zip(_user_inputs(program), leaves, strict=True):
        if isinstance(promised, torch.Tensor):
            for extent, size in zip(promised.shape, leaf.shape, strict=True):
                if isinstance(extent, torch.SymInt) and extent.node.expr.is_Symbol:
                    found[extent.node.expr] = int(size)
    return found


def _user_inputs(program: torch.export.ExportedProgram) -> list[Any]:
    placeholders = {n.name: n.meta.get("val") for n in program.graph.nodes if n.op == "placeholder"}
    names = program.graph_signature.user_inputs
    return [placeholders[n] if isinstance(n, str) else n for n in names]


def _inputs(program: torch.export.ExportedProgram, numbers: Mapping[Any, int]) -> dict[str, Any]:
    leaves = [_at(value, numbers) for value in _user_inputs(program)]
    args, kwargs = pytree.tree_unflatten(leaves, program.call_spec.in_spec)
    signature = program.module_call_graph[0].signature
    return dict(zip(signature.forward_arg_names, [*args, *kwargs.values()], strict=True))


def _at(value: Any, numbers: Mapping[Any, int]) -> Any:
    if isinstance(value, torch.Tensor):
        return _Sized(tuple(_at(size, numbers) for size in value.shape))
    if isinstance(value, torch.SymInt):
        return int(value.node.expr.subs(numbers))
    return value
