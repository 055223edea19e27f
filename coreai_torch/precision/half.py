"""Convert a captured program to half precision."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from fnmatch import fnmatchcase
from typing import Any

import torch
from torch import fx

from ..errors import ConversionError, module_path
from . import running
from .checking import DTYPES, check_keep, check_precision, checked_samples
from .defaults import defaults
from .float32_ops import Float32Ops, float32_ops
from .islands import Found, Island, Search
from .recast import WeightCasts, recast

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
    float32: Float32Ops | None = None  # of the converted program, those of lowerings included

    def __str__(self) -> str:
        count = len(self.islands)
        lines = [f"{self.dtype}: {count} {'island' if count == 1 else 'islands'} in float32"]
        errors = f"{self.error_before:.2g} without islands, {self.error_after:.2g} with them"
        lines.append(f"  error {errors} (limit {self.limit:.2g})")
        if self.float32_share is not None:
            lines.append(f"  {self.float32_share:.1%} of the multiply-adds in float32")
        if self.float32 is not None:
            lines.append(f"  {self.float32}")
        lines += [f"  {i.node} = {i.op}: {i.reason}" for i in self.islands]
        return "\n".join(lines)


def set_report(program: Any, reports: Mapping[str, PrecisionReport]) -> None:
    """Store the reports of entry points in their program, with the float32 ops that it has."""
    if not reports:
        return
    counted = float32_ops(program, list(reports))
    found = [replace(r, float32=c) for r, c in zip(reports.values(), counted, strict=True)]
    program.precision_report = found[0] if len(found) == 1 else found


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
    (found,) = to_half_together([(program, samples)], precision, keep, half_ports, limit)
    return found


def to_half_together(
    programs: Sequence[tuple[torch.export.ExportedProgram, Sequence[Sequence[Any]]]],
    precision: str,
    keep: str | Sequence[str] = "auto",
    half_ports: bool = False,
    limit: float | None = None,
) -> list[tuple[torch.export.ExportedProgram, PrecisionReport]]:
    """Return programs of one model in half precision, with the same islands and shared weights.

    `programs` has pairs of a program and its samples; the other arguments are those of `to_half`.
    """
    check_precision(precision)
    check_keep(keep)
    programs = [(one, checked_samples(one, samples)) for one, samples in programs]
    dtype, limit = DTYPES[precision], LIMITS[precision] if limit is None else limit
    keep = "auto" if not isinstance(keep, str) and [*keep] == ["auto"] else keep
    weights = WeightCasts(dtype)
    searches = [
        Search(one, samples, defaults(one), dtype, limit, weights, half_ports=half_ports)
        for one, samples in programs
    ]
    for search in searches:
        search.check_outputs()
        if half_ports:
            search.check_ports()
    if keep == "auto":
        results = _joined(searches, [search.run() for search in searches], limit)
    else:
        patterns = [keep] if isinstance(keep, str) else keep
        results = [search.measure(_named(search, patterns)) for search in searches]
    made = []
    for search, found, (program, samples) in zip(searches, results, programs, strict=True):
        _check_error(search, found, precision, limit, chosen=keep != "auto")
        kept = {*search.kept, *found.islands}
        half = recast(
            program, kept, dtype, half_ports=half_ports, weights=weights, masks=search.masks
        )
        made.append((half, _report(program, samples, precision, search.kept, found, limit)))
    return made


def _joined(searches: Sequence[Search], results: Sequence[Found], limit: float) -> list[Found]:
    """Give all programs the islands of each, so that a weight has the same dtype in all of them."""
    if len(searches) == 1:
        return list(results)
    islands = {name: island for one in results for name, island in one.islands.items()}
    joined = []
    for search, found in zip(searches, results, strict=True):
        every = search.measure(search.known(islands))
        joined.append(every if every.error_after <= limit else found)
    return joined


def _check_error(
    search: Search, found: Found, precision: str, limit: float, *, chosen: bool
) -> None:
    """Reject outputs that are not finite and, unless the user chose `keep`, inaccurate ones."""
    error = found.error_after
    if error <= limit:
        return
    problem = (
        f"the {precision} program differs from float32 by {error:.2g} of the norm of its outputs, "
        f"above the limit of {limit:.2g}\n  at    {search.blame(found.islands)}"
    )
    hint = 'pass typical inputs as calibration, keep=[...] with more modules, or keep="auto"'
    if search.has_half_ports:
        hint = "leave out half_ports, or " + hint
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


def _named(search: Search, patterns: Sequence[str]) -> dict[str, Island]:
    """Return the nodes that match the patterns; a pattern without a match is rejected."""
    found: dict[str, Island] = {}
    calls = [node for node in search.nodes.values() if node.op == "call_function"]
    for pattern in patterns:
        nodes = [node for node in calls if _fits(node, pattern)]
        if not nodes:
            raise ConversionError(_unmatched(calls, pattern))
        for node in nodes:
            found.update(search.island(node, f"keep={pattern!r}"))
    return found


def _names(node: fx.Node) -> set[str]:
    """Return the names that a pattern may match: module paths with those around it, op, node."""
    target, path = str(node.target), module_path(node)
    parts = path.split(".")
    modules = {".".join(parts[: i + 1]) for i in range(len(parts))} - {""}
    return {node.name, target, target.rpartition(".")[0], *modules}


def _fits(node: fx.Node, pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in _names(node))


def _unmatched(calls: Sequence[fx.Node], pattern: str) -> str:
    names = sorted({name for node in calls for name in _names(node)})
    near = get_close_matches(pattern, names, n=1)
    asked = f"; did you mean {near[0]!r}?" if near else ""
    return (
        f"keep: nothing matches {pattern!r}{asked}\n"
        "  try   pass a module path, an op as aten.exp, or the name of a node; * matches any part"
    )
