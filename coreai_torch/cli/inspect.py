"""`coreai-torch inspect`: show the contents of an asset."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Json, answer, counted, size, table

if TYPE_CHECKING:
    from ..report import Summary

HELP = """Show the contents of an asset: functions, ports, states, weights, ops, metadata.

\b
  coreai-torch inspect net.aimodel
  coreai-torch inspect net.aimodel --json | jq .weights
"""


def inspect(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    as_json: Json = False,
) -> None:
    """Print a summary."""
    from ..asset.metadata import read_metadata
    from ..report import summarize

    contents, metadata = summarize(asset), read_metadata(asset)
    lines = [*_describe(asset, contents), *_metadata(metadata)]
    data = {**dataclasses.asdict(contents), "metadata": metadata}
    answer(data, lines, as_json=as_json, ok=True)


def _describe(asset: Path, contents: Summary) -> Iterator[str]:
    yield f"{asset}: {size(contents.file_bytes or 0)}, {size(contents.weight_bytes)} of constants"
    for function in contents.functions:
        yield f"\nfunction {function.name}, {counted(function.ops, 'op')}"
        for what in ("inputs", "outputs", "states"):
            yield from (f"  {what[:-1]:<7} {port}" for port in getattr(function, what))
    if contents.composites:
        yield "\ncomposites"
        yield from table([(count, name) for name, count in contents.composites.items()])
    if contents.kernels:
        yield "\nMetal kernels"
        yield from (f"  {name}" for name in contents.kernels)
    yield "\nconstants"
    yield from table([(d, count, size(b)) for d, (count, b) in contents.weights.items()])
    yield "\nops"
    ops = [(count, name.removeprefix("coreai.")) for name, count in contents.ops.items()]
    yield from table(ops)


def _metadata(metadata: Mapping[str, Any]) -> Iterator[str]:
    from ..asset.metadata import (
        ASSUMPTIONS,
        IMAGES,
        LABELS,
        RANDOM,
        assumptions_of,
        image_text,
        images_of,
        labels_of,
        random_of,
        random_text,
    )

    labels, images, random = labels_of(dict(metadata)), images_of(metadata), random_of(metadata)
    assumptions = assumptions_of(metadata)
    described = {LABELS: labels, IMAGES: images, RANDOM: random, ASSUMPTIONS: assumptions}
    if metadata:
        yield "\nmetadata"
        yield from table([(k, v) for k, v in metadata.items() if not described.get(k)], "")
    for name, image in images.items():
        yield f"  image {name}: {image_text(image)}"
    for name, record in random.items():
        yield f"  random {name}: {random_text(record)}"
    for one in assumptions:
        yield f"  assumed: {one['condition']}, at {one['line']}"
    for output, texts in labels.items():
        more = ", ..." if len(texts) > 5 else ""
        yield f"  labels of {output}: {len(texts)} ({', '.join(texts[:5])}{more})"
