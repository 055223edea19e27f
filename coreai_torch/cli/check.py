"""`coreai-torch check`: list everything that prevents a conversion."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .console import Checkpoint, DType, Inputs, Json, Source, answer, counted, error_data

if TYPE_CHECKING:
    from ..lowering.survey import Blocker

HELP = """Check whether a model can be converted, and list every blocker; does not convert.

\b
  coreai-torch check model.pt2
  coreai-torch check models.py:net --input "x=f32[1,3,224,224]" --json

Each blocker has a count, the module, the source line and a hint. Exits with code 1 if there are
any.
"""
_SHOWN = 3  # places of one blocker


def check(
    source: Source,
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    as_json: Json = False,
) -> None:
    """Look for blockers."""
    from ..converter import TorchConverter
    from ..errors import ExportError
    from .model_source import load

    loaded = load(source, inputs or (), checkpoint=checkpoint, dtype=dtype)
    converter = TorchConverter().register_custom_kernels(loaded.kernels)
    try:
        program = loaded.capture(converter)
    except ExportError as error:
        export = error_data(str(error), error.code)
        answer({"ops": 0, "blockers": [], "export": export}, str(error), as_json=as_json, ok=False)
    blockers = converter.blockers(program)
    count = sum(n.op == "call_function" for n in program.graph.nodes)
    data = {
        "ops": count,
        "blockers": [{**dataclasses.asdict(b), "count": b.count} for b in blockers],
    }
    if not blockers:
        answer(data, f"{source} can be converted: {counted(count, 'op')}", as_json=as_json, ok=True)
    answer(data, _describe(source, blockers), as_json=as_json, ok=False)


def _describe(source: str, blockers: list[Blocker]) -> Iterator[str]:
    total = sum(b.count for b in blockers)
    many = f"{counted(len(blockers), 'blocker')} in {counted(total, 'place')}"
    yield f"{source} cannot be converted: {many}"
    for blocker in blockers:
        times = "once" if blocker.count == 1 else f"{blocker.count} times"
        yield f"\n{blocker.op}, {times}: {blocker.problem}"
        for place in blocker.places[:_SHOWN]:
            inside = f"in module {place.module!r}" if place.module else ""
            parts = [f"%{place.node}", place.result, inside, place.source_line]
            yield "  at    " + ", ".join(part for part in parts if part)
        if blocker.count > _SHOWN:
            yield f"        and {blocker.count - _SHOWN} more"
        yield f"  try   {blocker.hint}"
        yield f"  code  {blocker.code}"
