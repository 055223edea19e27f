"""Choose rewrites for a target, and apply them to a module that is still open."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from ...asset.reading import place_of
from ...errors import ConversionError
from ...ir.build import Build
from ...ir.zero_size import POSSIBLE
from ...mlir import editing
from .rewrite import Rewrite, Rewritten
from .table import REWRITES

TARGETS = ("neural_engine", "gpu", "cpu", "any", "linux")


def chosen(
    target: str | None,
    *,
    safe: bool = True,
    without: Collection[str] = (),
    also: Collection[str] = (),
) -> tuple[Rewrite, ...]:
    """Return the rewrites for a target: those about its unit, or all of them for `"any"`.

    `also` are the codes of rewrites that apply on request only.
    """
    if target is not None and target not in TARGETS:
        raise ConversionError(
            f"target is {target!r}\n  try   pass one of {', '.join(map(repr, TARGETS))}"
        )
    codes = [rewrite.code for rewrite in REWRITES]
    left_out, asked = ([x] if isinstance(x, str) else list(x) for x in (without, also))
    for code in (*left_out, *asked):
        if code not in codes:
            raise ConversionError(
                f"no rewrite has the id {code!r}\n  try   pass one of {', '.join(sorted(codes))}"
            )
    if target is None or not safe:
        return ()
    return tuple(
        rewrite
        for rewrite in REWRITES
        if (target == "any" or target in rewrite.units)
        and rewrite.code not in left_out
        and (not rewrite.on_request or rewrite.code in asked)
    )


def apply(build: Build, rewrites: Sequence[Rewrite]) -> list[Rewritten]:
    """Apply rewrites to all graphs of an open module, one after the other."""
    done: list[Rewritten] = []
    with build.assume(POSSIBLE):  # the ranges of dynamic sizes are not known any more
        for rewrite in rewrites:
            for graph in editing.graphs(build.module):
                done.extend(_pass(rewrite, graph))
            editing.erase_uncalled(build)
    return done


def _is_narrow(op: editing.Operation) -> bool:
    """Return whether an op has integers of 4 bits or less, for which torch has no dtype."""
    values = (*op.operands, *op.results)
    elements = {str(getattr(value.type, "element_type", "")) for value in values}
    return any(re.fullmatch(r"[su]i[1-7]", element) for element in elements)


def _pass(rewrite: Rewrite, graph: editing.Operation) -> list[Rewritten]:
    done = []
    name = str(graph.attributes["sym_name"].value)
    for op in list(editing.ops_of(graph)):
        if editing.kind(op) == "constant" or editing.is_unused(op) or _is_narrow(op):
            continue
        with editing.before(op, graph):
            values = rewrite.apply(op)
        if values is not None:
            place = str(place_of(op.location))
            done.append(Rewritten(rewrite.code, rewrite.summary, name, editing.kind(op), place))
            editing.replace(op, values)
    if done:
        editing.erase_unused(graph)
    return done
