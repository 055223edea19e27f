"""Count the contents of a program: functions, ports, composites, weights, ops."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..formatting import counted, size
from .contents import Figures, FunctionSummary, PortSummary, op_counts, signature
from .markup import Markup, element, joined, shown, table
from .metadata import SIZES, annotation
from .reading import Block, Function, Op, Port, Program, Source, Type, bytes_of, read

if TYPE_CHECKING:
    from rich.console import RenderableType


_SHOWN = 12  # kinds of ops
_STYLE = """
.coreai-summary { font: 14px/1.5 system-ui, sans-serif; max-width: 60rem; }
.coreai-summary h3 { font-size: 1em; margin: .8em 0 .2em; display: flex; gap: .8em; }
.coreai-summary table { border-collapse: collapse; margin: 0; }
.coreai-summary th, .coreai-summary td { padding: .15em 1.2em .15em 0; text-align: left; }
.coreai-summary thead { opacity: .65; }
.coreai-summary .quiet { opacity: .65; font-weight: normal; }
"""


def fragment(summary: Figures) -> str:
    """Return a self-contained HTML fragment with escaped names."""
    parts = [
        element("strong", headline(summary)),
        signature(summary),
        _counts("composites", list(summary.composites.items())),
        _counts("ops", op_counts(summary)),
        _constants(summary),
    ]
    return str(element("div", element("style", Markup(_STYLE)), *parts, class_="coreai-summary"))


def headline(summary: Figures) -> str:
    """Return the summary in one line."""
    ops = sum(function.ops for function in summary.functions)
    parts = [
        "Core AI program",
        counted(len(summary.functions), "function"),
        counted(ops, "op"),
        f"{size(summary.weight_bytes)} of constants",
    ]
    if summary.file_bytes is not None:
        parts.append(f"{size(summary.file_bytes)} on disk")
    return ", ".join(parts)


def _counts(title: str, counts: list[tuple[str, int]]) -> Markup | None:
    if not counts:
        return None
    return joined(element("h3", title), element("div", listed(counts)))


def listed(counts: list[tuple[str, int]]) -> str:
    """Return `add 12, mul 4 and 3 more kinds`."""
    text = ", ".join(f"{name} {count}" for name, count in counts[:_SHOWN])
    more = len(counts) - _SHOWN
    return text if more <= 0 else f"{text} and {counted(more, 'more kind')}"


def _constants(summary: Figures) -> Markup | None:
    if not summary.weights:
        return None
    rows = [
        (element("code", dtype), str(count), size(nbytes))
        for dtype, (count, nbytes) in summary.weights.items()
    ]
    return joined(element("h3", "constants"), table(("dtype", "count", "size"), rows))


def panel(summary: Figures) -> RenderableType:
    """Return the summary for rich; square brackets in names are not markup."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    ports = Table(box=None, pad_edge=False, header_style="dim")
    for title in ("function", "", "name", "type"):
        ports.add_column(title, overflow="fold")
    for function in summary.functions:
        for kind in ("inputs", "outputs", "states"):
            for port in getattr(function, kind):
                name, _, type_ = shown(str(port)).rpartition(": ")
                cells = (shown(function.name), kind[:-1], name, type_)
                ports.add_row(*(Text(cell) for cell in cells))
    lines = [("composites", list(summary.composites.items())), ("ops", op_counts(summary))]
    listings = [Text(f"{title}  {shown(listed(counts))}") for title, counts in lines if counts]
    constant_text = ", ".join(f"{d} {c} ({size(b)})" for d, (c, b) in summary.weights.items())
    constants = [Text(f"constants  {constant_text}")] if constant_text else []
    return Group(Text(headline(summary), style="bold"), ports, *listings, *constants)


@dataclass(frozen=True)
class Summary:
    """The contents of a program in numbers."""

    functions: tuple[FunctionSummary, ...]
    graphs: dict[str, int]  # private graphs by name, with their number of ops
    composites: dict[str, int]  # how often each composite is called
    ops: dict[str, int]  # how often each op occurs, the most frequent first
    weights: dict[str, tuple[int, int]]  # by dtype: number of constants, bytes; shared ones once
    kernels: tuple[str, ...]
    file_bytes: int | None  # size of the files of the asset

    @property
    def weight_bytes(self) -> int:
        """The bytes of all constants."""
        return sum(size for _, size in self.weights.values())

    def _repr_html_(self) -> str:
        """Return what a notebook shows."""
        return fragment(self)

    def __rich__(self) -> Any:
        """Return what rich prints in a terminal."""
        return panel(self)


def summarize(source: Source) -> Summary:
    """Summarize a program, an asset, or the path of one."""
    return summary_of(read(source, largest=0), file_bytes(source), annotation(source, SIZES))


def summary_of(
    program: Program, size: int | None, ranges: Mapping[str, Any] | None = None
) -> Summary:
    """Summarize a program that was read, with files of this size.

    `ranges` has the dynamic sizes by function and port, as `annotations.SIZES` stores them.
    """
    ranges = ranges or {}
    every = [op for function in program.functions.values() for op in ops_of(function.body)]
    counted = Counter(op.name for op in every if op.name != "coreai.constant")
    return Summary(
        tuple(
            _function(f, program, ranges.get(f.name, {}))
            for f in program.functions.values()
            if not f.is_private
        ),
        {f.name: len(list(ops_of(f.body))) for f in program.functions.values() if f.is_private},
        _composites(every, program),
        dict(counted.most_common()),
        _weights(every),
        tuple(op.attributes["kernel_name"] for op in every if op.name == "coreai.metal4_kernel"),
        size,
    )


def ops_of(block: Block) -> Iterator[Op]:
    """Yield every op of a block and of the regions within it."""
    for op in block.ops:
        yield op
        for region in op.regions:
            yield from ops_of(region)


def once(ops: Iterable[Op]) -> Iterator[Op]:
    """Yield the ops without the constants whose blob an earlier one has already shown."""
    seen: set[tuple[str, Type]] = set()
    for op in ops:
        key = op.blob, op.types[0] if op.blob else Type("")
        if not op.blob or key not in seen:
            yield op
        seen.add(key)


def _function(function: Function, program: Program, ranges: Mapping[str, Any]) -> FunctionSummary:
    def listed(ports: Sequence[Port]) -> tuple[PortSummary, ...]:
        return tuple(_port(port, ranges.get(port.name, {})) for port in ports)

    return FunctionSummary(
        function.name,
        listed([p for p in function.inputs if p.type.kind != "handle"]),
        listed([p for p in function.outputs if p.type.kind != "token"]),
        listed([p for p in function.inputs if p.type.kind == "handle"]),
        _executed(function, program),
    )


def _port(port: Port, ranges: Mapping[str, Sequence[Any]]) -> PortSummary:
    sizes = tuple(None if size < 0 else size for size in port.type.shape)
    named = {int(a): _range(*r[:3]) for a, r in ranges.items() if sizes[int(a)] is None}
    return PortSummary(port.name, port.type.element, sizes, named)


def _range(name: str, low: int | None, high: int | None) -> str:
    return f"{name} {'' if low is None else low}..{'' if high is None else high}"


def _executed(function: Function, program: Program) -> int:
    total = 0
    for op in ops_of(function.body):
        if op.name == "coreai.invoke":
            total += _executed(program.functions[op.attributes["callee"]], program)
        elif op.name not in ("coreai.constant", "coreai.output"):
            total += 1
    return total


def _composites(every: list[Op], program: Program) -> dict[str, int]:
    called = (op.attributes["callee"] for op in every if op.name == "coreai.invoke")
    names = (program.functions[name].composite for name in called)
    return dict(Counter(name for name in names if name).most_common())


def _weights(every: list[Op]) -> dict[str, tuple[int, int]]:
    weights: dict[str, tuple[int, int]] = {}
    for op in once(every):
        if op.name == "coreai.constant":
            count, size = weights.get(op.types[0].element, (0, 0))
            weights[op.types[0].element] = (count + 1, size + bytes_of(op.types[0]))
    return dict(sorted(weights.items(), key=lambda item: -item[1][1]))


def file_bytes(source: Source) -> int | None:
    """Return the size of the files of an asset; None for a program without files."""
    path = getattr(source, "path", source)
    if not isinstance(path, str | Path):
        return None
    return sum(file.stat().st_size for file in Path(path).rglob("*") if file.is_file())
