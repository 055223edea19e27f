"""Write the tables of docs/dialect.md, and docs/dialect/*.md: `python -m tests.docs.dialect_page`.

The docstrings of `coreai_torch.ir.dialect` are the source, as for `tests.docs.api_page`. The text
above the first table is written by hand.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from coreai_torch.ir import dialect
from tests.docs.api_page import DOCS, own_doc, summary

MODULE = "coreai_torch.ir.dialect"

# The pages: title, introduction, and the modules that define their functions.
GROUPS = (
    ("Arithmetic", "Sums, products, rounding and complex numbers.", ("arithmetic",)),
    ("Functions", "Functions of each element of one tensor.", ("functions",)),
    ("Logic", "Comparisons, boolean and bitwise ops, and `where`.", ("logic",)),
    ("Constants", "Numbers and tensors that are known at conversion.", ("literals",)),
    ("Element types", "Casts, and questions about the element type.", ("casting",)),
    ("Sizes", "Read and change sizes, static or dynamic.", ("shapes",)),
    ("Slices and axes", "Move, repeat, pad or select elements.", ("rearranging", "filling")),
    ("Reductions", "Reduce axes, or go along one axis.", ("reductions",)),
    ("Indexing", "Sort, gather and scatter by index.", ("indexing",)),
    ("Windows", "Convolutions, pools and resampling.", ("spatial",)),
)


def names(modules: tuple[str, ...]) -> list[str]:
    """Return the functions of a group, in the order of their definition."""
    found = [n for n in dialect.__all__ if inspect.isfunction(getattr(dialect, n))]
    found = [n for n in found if getattr(dialect, n).__module__.rpartition(".")[2] in modules]
    return sorted(found, key=lambda n: (modules.index(_home(n)), _line(n)))


def _home(name: str) -> str:
    return str(getattr(dialect, name).__module__.rpartition(".")[2])


def _line(name: str) -> int:
    return inspect.getsourcelines(inspect.unwrap(getattr(dialect, name)))[1]


def _file(title: str) -> str:
    return title.lower().replace(" ", "-") + ".md"


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    page = DOCS / "dialect.md"
    intro = page.read_text().partition(f"\n## {GROUPS[0][0]}\n")[0].rstrip()
    yield page, "\n".join([intro, *_tables()]) + "\n"
    for title, intro, modules in GROUPS:
        entries = [f"\n::: {MODULE}.{name}" for name in names(modules)]
        start = f"Functions of `{MODULE}`; [the dialect](../dialect.md) explains the types."
        text = "\n".join([f"# {title}", "", f"{intro} {start}", *entries])
        yield DOCS / "dialect" / _file(title), text + "\n"


def _tables() -> Iterator[str]:
    for title, intro, modules in GROUPS:
        yield from ("", f"## {title}", "", intro, "", "| function | description |", "|---|---|")
        for name in names(modules):
            link = f"[`{name}`](dialect/{_file(title)}#{MODULE}.{name})"
            yield f"| {link} | {summary(own_doc(getattr(dialect, name)))} |"


def main() -> None:
    """Write the pages, and delete those of groups that no longer exist."""
    made = dict(pages())
    (DOCS / "dialect").mkdir(exist_ok=True)
    for stale in set((DOCS / "dialect").glob("*.md")) - made.keys():
        stale.unlink()
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
