"""Write the graphs of a program as plain data for a page, with all strings in one table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ..asset.markup import shown
from ..asset.reading import DYNAMIC, Block, Function, Op, Place, Program, Type, bytes_of
from ..debugging.graph import operation_ids
from .costs import Costs, multiply_adds

SMALL = 64  # bytes of a constant whose elements are shown
_LONGEST = 400  # characters of an op's attributes, which may include the source of a kernel


@dataclass
class _Texts:
    """A table of distinct strings; ops refer to them by number."""

    numbers: dict[str, int] = field(default_factory=dict)

    def number(self, text: str) -> int:
        return self.numbers.setdefault(shown(text), len(self.numbers))

    def lines(self, lines: list[str]) -> int:
        """Return the number of a text of several lines."""
        return self.numbers.setdefault("\n".join(map(shown, lines)), len(self.numbers))


def graph_data(
    program: Program,
    milliseconds: Mapping[int, float],
    placed: Mapping[int, tuple[str, int]] | None = None,
) -> dict[str, Any]:
    """Return all functions with their ops; `milliseconds` maps ids of operations to times.

    `placed` maps ids to the estimated unit and the number of the region. Empty keys of an op are
    omitted, so that the data of thousands of ops stays small.
    """
    texts = _Texts()
    ids = {id(op): number for _, op, number in operation_ids(program)}
    numbers = {name: number for number, name in enumerate(program.functions)}
    writer = _Writer(texts, ids, numbers, milliseconds, Costs(program), placed or {})
    functions = [writer.function(function) for function in program.functions.values()]
    return {"strings": list(texts.numbers), "functions": functions}


@dataclass(frozen=True)
class _Writer:
    texts: _Texts
    ids: Mapping[int, int]
    functions: Mapping[str, int]
    milliseconds: Mapping[int, float]
    costs: Costs
    placed: Mapping[int, tuple[str, int]]

    def function(self, function: Function) -> dict[str, Any]:
        number = self.texts.number
        ports = zip(function.inputs, function.body.arguments, strict=True)
        return {
            "name": number(function.name),
            "private": function.is_private,
            "composite": number(function.composite),
            "arguments": [[v, number(p.name), number(type_text(p.type))] for p, v in ports],
            "outputs": [number(port.name) for port in function.outputs],
            "ops": [self.op(*entry) for entry in _flat(function.body)],
        }

    def op(self, op: Op, parent: int | None, region: int) -> dict[str, Any]:
        number, place = self.texts.number, op.place
        own = self.ids[id(op)]
        entry: dict[str, Any] = {
            "id": own,
            "op": number(op.name.removeprefix("coreai.")),
            "module": number(place.module) if place.module else None,
            "types": [number(type_text(t)) for t in op.types],
            "results": list(op.results),
            "operands": list(op.operands),
            "attributes": number(text) if (text := _attributes(op)) else None,
            "node": number(place.fx_node) if place.fx_node else None,
            "target": number(place.target) if place.target else None,
            **self.source(place),
            "calls": self.functions.get(op.attributes.get("callee", "")),
            "ms": round(self.milliseconds[own], 6) if own in self.milliseconds else None,
            "macs": multiply_adds(op) or None,
            "unit": number(self.placed[own][0]) if own in self.placed else None,
            "run": self.placed[own][1] if own in self.placed else None,
            "parent": parent,
            "region": region or None,
            **self.constant(op),
        }
        return {key: value for key, value in entry.items() if value is not None and value != []}

    def source(self, place: Place) -> dict[str, Any]:
        """Return the line of the model, and the other lines from the innermost to the outermost."""
        if not place.line:
            return {}
        frames = [(place.file, place.line), *place.callers]
        own = next((frame for frame in frames if not _is_library(frame[0])), frames[0])
        others = [f"{file}:{line}" for file, line in frames if (file, line) != own]
        return {
            "file": self.texts.number(own[0]),
            "line": own[1],
            "callers": self.texts.lines(others) if others else None,
        }

    def constant(self, op: Op) -> dict[str, Any]:
        if op.name != "coreai.constant":
            return {}
        value = op.attributes.get("value")
        text = self.texts.number(str(value.tolist())) if value is not None else None
        return {
            "bytes": bytes_of(op.types[0]),
            "value": text,
            "name": self.texts.number(op.blob) if op.blob else None,
            "parameters": self.costs.parameters.get(id(op)),
            "shared": id(op) in self.costs.shared or None,
        }


def _is_library(file: str) -> bool:
    """Return whether a file belongs to torch: layers are more useful than their implementation."""
    return "/torch/" in file.replace("\\", "/")


def _flat(block: Block) -> Iterator[tuple[Op, int | None, int]]:
    """Return every op with the index of its parent op and the number of its region there."""
    entries: list[tuple[Op, int | None, int]] = []

    def walk(inner: Block, parent: int | None, region: int) -> None:
        for op in inner.ops:
            entries.append((op, parent, region))
            at = len(entries) - 1
            for number, inside in enumerate(op.regions):
                walk(inside, at, number)

    walk(block, None, 0)
    return iter(entries)


def type_text(type_: Type) -> str:
    """Return a short text such as `f32[1, ?, 64]` or `handle f32[2]`."""
    if not type_.element:
        return type_.kind
    sizes = ", ".join("?" if size == DYNAMIC else str(size) for size in type_.shape)
    text = f"{type_.element}[{sizes}]"
    return text if type_.kind == "tensor" else f"{type_.kind} {text}"


def _attributes(op: Op) -> str:
    if op.name == "coreai.constant":
        return ""
    listed = " ".join(f"{k}={v}" for k, v in sorted(op.attributes.items()) if k != "callee")
    text = " ".join(listed.split())
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]} …"
