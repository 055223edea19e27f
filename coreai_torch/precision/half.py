"""Convert a captured program to half precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import fx

from ..errors import ConversionError, module_path
from . import running
from .defaults import defaults, op_name
from .islands import Found, Island, Search
from .recast import recast

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16}
# The relative error of an output, as a ratio of norms, up to which half precision is accepted.
LIMITS = {"float16": 1e-2, "bfloat16": 5e-2}


@dataclass(frozen=True)
class PrecisionReport:
    """What stays in float32, and what it costs."""

    dtype: str
    islands: tuple[Island, ...] = ()
    defaults: dict[str, str] = field(default_factory=dict)  # node to reason
    error_before: float = 0.0  # of the outputs, without islands
    error_after: float = 0.0
    limit: float = 0.0
    float32_share: float | None = None  # of the multiply-adds

    def __str__(self) -> str:
        lines = [f"{self.dtype}: {len(self.islands)} islands in float32"]
        errors = f"{self.error_before:.2g} without islands, {self.error_after:.2g} with them"
        lines.append(f"  error {errors} (limit {self.limit:.2g})")
        if self.float32_share is not None:
            lines.append(f"  {self.float32_share:.1%} of the multiply-adds in float32")
        lines += [f"  {i.node} = {i.op}: {i.reason}" for i in self.islands]
        return "\n".join(lines)


def check_precision(precision: str) -> None:
    """Raise if a precision is unknown."""
    if precision not in DTYPES:
        raise ConversionError(
            f"precision is {precision!r}\n  try   pass one of {', '.join(map(repr, DTYPES))}"
        )


def to_half(
    program: torch.export.ExportedProgram,
    samples: Sequence[Sequence[Any]],
    precision: str = "float16",
    keep: str | Sequence[str] = "auto",
    *,
    half_ports: bool = False,
    limit: float | None = None,
) -> tuple[torch.export.ExportedProgram, PrecisionReport]:
    """Return the program in half precision, and a report.

    Args:
        program: a decomposed program in float32.
        samples: inputs as flat lists of leaves; ranges and errors are measured on them.
        precision: `"float16"` or `"bfloat16"`.
        keep: `"auto"` to find the nodes that must stay in float32, or patterns of module paths,
            ops and node names: `["encoder.layers.0.*", "aten.exp"]`.
        half_ports: whether float inputs and outputs become half precision too.
        limit: the relative error of the outputs to accept, as a ratio of norms.
    """
    check_precision(precision)
    dtype, limit = DTYPES[precision], LIMITS[precision] if limit is None else limit
    search = Search(program, samples, defaults(program), dtype, limit)
    if keep == "auto":
        found = search.run()
    else:
        found = search.measure(_named(program, [keep] if isinstance(keep, str) else keep))
    _check_error(found.error_after, precision, limit, chosen=keep != "auto")
    always = search.kept
    half = recast(program, {*always, *found.islands}, dtype, half_ports=half_ports)
    return half, _report(program, samples, precision, always, found, limit)


def _check_error(error: float, precision: str, limit: float, *, chosen: bool) -> None:
    """Reject outputs that are not finite and, unless the user chose `keep`, inaccurate ones."""
    if error <= limit:
        return
    problem = (
        f"the {precision} program differs from float32 by {error:.2g} of the norm of its outputs, "
        f"above the limit of {limit:.2g}"
    )
    hint = 'pass typical inputs as calibration, keep=[...] with more modules, or keep="auto"'
    if chosen and math.isfinite(error):
        warnings.warn(f"{problem}\n  try   {hint}", stacklevel=4)
    else:
        raise ConversionError(f"{problem}\n  try   {hint}")


def _report(
    program: torch.export.ExportedProgram,
    samples: Sequence[Sequence[Any]],
    precision: str,
    always: dict[str, str],
    found: Found,
    limit: float,
) -> PrecisionReport:
    counted = running.multiply_adds(program, samples[0]) if samples else {}
    total = sum(counted.values())
    full = sum(count for name, count in counted.items() if name in found.islands or name in always)
    return PrecisionReport(
        precision,
        tuple(found.islands.values()),
        always,
        found.error_before,
        found.error_after,
        limit,
        full / total if total else None,
    )


def _named(program: torch.export.ExportedProgram, patterns: Sequence[str]) -> dict[str, Island]:
    """Return the nodes that match the patterns; a pattern without a match is rejected."""
    found: dict[str, Island] = {}
    for pattern in patterns:
        nodes = [n for n in program.graph.nodes if n.op == "call_function" and _fits(n, pattern)]
        if not nodes:
            raise ConversionError(
                f"keep: nothing matches {pattern!r}\n"
                "  try   pass a module path with *, an op as aten.exp, or the name of a node"
            )
        found.update((n.name, Island(n.name, op_name(n), f"keep={pattern!r}", 0.0)) for n in nodes)
    return found


def _fits(node: fx.Node, pattern: str) -> bool:
    target = str(node.target)
    names = (node.name, target, target.rpartition(".")[0], module_path(node))
    return any(name and fnmatchcase(name, pattern) for name in names)
