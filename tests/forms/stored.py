"""Stored forms: a file for each family, a line for each form of an op.

`flip 0-2,5: reverse` are the cases 0, 1, 2 and 5 of flip.
"""

from __future__ import annotations

import functools
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import version
from pathlib import Path

FOLDER = Path(__file__).parent
_PINNED = FOLDER.parents[1] / "constraints.txt"


def family(module: str) -> str:
    """Return the name of the file for lowerings of a module: `shape` for `ops.shape.reshape`."""
    return module.partition("coreai_torch.ops.")[2].partition(".")[0] or "others"


def file(family: str) -> Path:
    return FOLDER / f"{family}.txt"


def read() -> dict[str, str]:
    """Return all stored forms by the name of the case: `flip-0`."""
    return {name: form for file in sorted(FOLDER.glob("*.txt")) for name, form in read_file(file)}


@functools.cache
def are_comparable() -> bool:
    """Return whether forms are stored for this version of torch, and no rewrites are requested."""
    plain = version("torch").partition("+")[0]
    is_pinned = f"torch=={plain}" in _PINNED.read_text().split()
    return is_pinned and not os.environ.get("REWRITES") and any(FOLDER.glob("*.txt"))


def check(name: str, form: str) -> None:
    """Raise unless a case has the stored form."""
    op = name.rpartition("-")[0]
    want = _once().get(name, "not stored")
    assert form == want, (
        f"the form of {name} is\n  {form}\nand was\n  {want}\n"
        f"  try   python -W ignore -m tests.forms --record {op}"
    )


@functools.cache
def _once() -> dict[str, str]:
    return read()


def read_file(file: Path) -> Iterator[tuple[str, str]]:
    """Yield the cases in a file with their forms."""
    for line in file.read_text().splitlines():
        head, form = line.split(": ", 1)
        op, numbers = head.split(" ")
        yield from ((f"{op}-{number}", form) for number in _numbers(numbers))


def write(file: Path, forms: Mapping[str, str]) -> None:
    """Write the forms of one family."""
    grouped: dict[tuple[str, str], list[int]] = defaultdict(list)
    for name, form in forms.items():
        op, _, number = name.rpartition("-")
        grouped[op, form].append(int(number))
    rows = sorted((op, min(numbers), numbers, form) for (op, form), numbers in grouped.items())
    file.write_text("".join(f"{op} {_ranges(n)}: {form}\n" for op, _, n, form in rows))


def _numbers(text: str) -> Iterator[int]:
    for part in text.split(","):
        first, last = re.fullmatch(r"(\d+)(?:-(\d+))?", part).groups()
        yield from range(int(first), int(last or first) + 1)


def _ranges(numbers: Iterable[int]) -> str:
    """Return `0-2,5` for 0, 1, 2 and 5."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(str(r[0]) if len(r) == 1 else f"{r[0]}-{r[-1]}" for r in runs)
