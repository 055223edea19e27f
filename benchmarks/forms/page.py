"""Print rows, and write docs/forms.md."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

from tests.provenance import describe

from .judge import Row, Total, is_foreign, total, worst
from .program import ROOT

PAGE = ROOT / "docs" / "forms.md"
_TEXT = """# Forms

The ops that this converter emits, beside those of the published converter ({published}), which
runs in its own environment. Written by `make forms` from build/forms.json; `python -m
benchmarks.forms --only resize` compares single programs.

Ops are counted after `optimize()`, without constants; a composite is one op. *Foreign* ops are
`while`, `if`, `gather*`, `scatter*`, `slice_update`, `where`, `non_zero` and `argsort` of a kind
that the published program lacks. A program is *plain* if it has at most as many ops as the
published one and no foreign ones; a resize by broadcasts may have four ops more. Guards that must
stay make others longer, each with a reason. *Findings* are the places that `lint` finds for the
neural engine and the GPU. Each pair of figures has ours first. Weights are random, pictures are
small.

{measured}
"""
_HEADER = ("program", "ops", "foreign", "casts", "float32 ops", "neural engine", "gpu")


def _pair(numbers: tuple[int, int]) -> str:
    return f"{numbers[0]} / {numbers[1]}"


def _named(counts: dict[str, int]) -> str:
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


def line(row: Row) -> str:
    """Return one line about a row."""
    if not row.is_compared:
        return f"?     {row.dtype} {row.name}: {row.problem}"
    mark = "plain" if row.is_plain else "LONG " if not row.foreign else "FOREIGN"
    foreign = f"  foreign: {_named(row.foreign)}" if row.foreign else ""
    casts = f"  casts {_pair(row.casts)}" if any(row.casts) else ""
    wide = f"  float32 {row.ours['float32']}" if row.dtype == "f16" and row.ours["float32"] else ""
    return f"{mark:7} {row.dtype} {row.name}: {_pair(row.ops)}{foreign}{casts}{wide}"


def change(before: Row | None, now: Row) -> str:
    """Return how the number of ops changed since the row was measured last."""
    if before is None or not (before.is_compared and now.is_compared):
        return ""
    was, is_ = before.ops[0], now.ops[0]
    return f"  (was {was} at {before.commit})" if was != is_ else ""


def side_by_side(row: Row) -> str:
    """Return the histograms of both programs, differences marked, and the findings."""
    lines = ["", line(row)]
    if not row.is_compared:
        sides = [("ours", row.ours), ("published", row.published)]
        known = [f"  {n}: {_named(side['ops'])}" for n, side in sides if "ops" in side]
        return "\n".join([*lines, *known])
    ours, theirs = row.ours["ops"], row.published["ops"]
    lines.append(f"  {'op':32} {'ours':>6} {'published':>10}")
    for kind in sorted({*ours, *theirs}):
        mine, other = ours.get(kind, 0), theirs.get(kind, 0)
        sign = f"{mine - other:+d}" if mine != other else ""
        note = " foreign" if kind in row.foreign else " (bad)" if mine and is_foreign(kind) else ""
        lines.append(f"  {kind:32} {mine or '':>6} {other or '':>10} {sign:>5}{note}")
    for name, side in (("ours", row.ours), ("published", row.published)):
        if side["inner"]:
            lines.append(f"  inside composites, {name}: {_named(side['inner'])}")
        for target, found in side["findings"].items():
            if found:
                lines.append(f"  lint {target}, {name}: {_named(found)}")
    return "\n".join(lines)


def sentence(dtype: str, found: Total) -> str:
    """Return the totals of one dtype as a sentence."""
    wide = f", {_pair(found.float32)} float32 ops" if dtype == "f16" else ""
    plain = f"{found.plain} of {found.compared} plain, {found.explained} with a reason"
    return f"{dtype}: {plain}, {_pair(found.casts)} casts{wide}"


def write(rows: Collection[Row], measured: dict[str, str], published: str) -> None:
    """Write the page of all rows."""
    parts = [_TEXT.format(published=published.replace("==", " "), measured=describe(measured))]
    commits = Counter(row.commit for row in rows).most_common()
    parts.append(f"Programs by commit: {', '.join(f'{c} {n}' for c, n in commits)}.\n")
    parts.append("## Totals\n")
    parts += [
        f"- {sentence(dtype, total(r for r in rows if r.dtype == dtype))}"
        for dtype in ("f32", "f16")
    ]
    parts.append("\n## Not plain, by family\n")
    parts.append(_markdown(("family", "programs"), _by_family(rows)))
    parts.append("\n## Reasons\n")
    parts.append(_markdown(("program", "reason"), _reasons(rows)))
    for dtype, title in (("f32", "float32"), ("f16", "float16")):
        table = [_cells(row) for row in rows if row.dtype == dtype]
        parts.append(f"\n## {title}\n\n{_markdown(_HEADER, table)}")
    PAGE.write_text("\n".join(parts) + "\n")


def _by_family(rows: Collection[Row]) -> list[tuple[str, ...]]:
    return [
        (f"{family} ({len(found)})", ", ".join(f"{r.name} {r.dtype}" for r in found))
        for family, found in worst(rows).items()
    ]


def _reasons(rows: Collection[Row]) -> list[tuple[str, ...]]:
    found = {row.name: row.reason for row in rows if row.is_compared and not row.is_plain}
    return [(name, reason or "none") for name, reason in found.items()]


def _cells(row: Row) -> tuple[str, ...]:
    if not row.is_compared:
        return (row.name, row.problem.replace("|", "\\|")[:100], *[""] * (len(_HEADER) - 2))
    name = row.name if row.is_plain else f"**{row.name}**"
    wide = _pair((row.ours["float32"], row.published["float32"])) if row.dtype == "f16" else ""
    findings = (_pair(row.findings(target)) for target in ("neural_engine", "gpu"))
    return (name, _pair(row.ops), _named(row.foreign), _pair(row.casts), wide, *findings)


def _markdown(header: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [header, ("---",) * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)
