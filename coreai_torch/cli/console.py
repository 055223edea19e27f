"""How commands answer: text for people or JSON for programs, and the exit code."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from typing import Annotated, Any, NoReturn, TextIO

import typer

from ..formatting import counted as counted
from ..formatting import size as size

OK, FAILED, USAGE, ERROR, INTERRUPTED = 0, 1, 2, 3, 130

Json = Annotated[bool, typer.Option("--json", help="Answer in JSON.")]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An example input, as x=f32[1,3,224,224]; n:4 is a size that may vary, "
        "i64[1,9]<1000 are integers below 1000, x=@file.npy is a file.",
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        help="An exported program (.pt2), or package.module:factory, or file.py:factory.",
        show_default=False,
    ),
]


_held: list[str] = []  # an answer in JSON, which is told when nothing else prints any more


@contextmanager
def alone(as_json: bool) -> Iterator[None]:
    """Keep standard output for the answer in JSON: what models print goes to standard error."""
    if not as_json:
        yield
        return
    _held.clear()
    kept = _moved_aside()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
    for text in _held:
        _say(text)


def _moved_aside() -> int | None:
    """Native code prints past `sys.stdout`; None where there is no such stream to move."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: 1 and 2 are other files
        return None
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        return None
    return kept


def _say(text: str, *, err: bool = False) -> None:
    """Print; a reader that left, as `head` does, changes nothing of what was done."""
    try:
        typer.echo(text, err=err)
    except BrokenPipeError:
        with suppress(OSError):  # or Python complains when it flushes the stream at its end
            os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())


def answer(data: dict[str, Any], text: str | Iterable[str], *, as_json: bool, ok: bool) -> NoReturn:
    """Say it, and leave with 0 or 1."""
    if as_json:
        _held.append(json.dumps(plain({"ok": ok, **data}), indent=2, allow_nan=False))
    else:
        _say(text if isinstance(text, str) else "\n".join(text))
    raise typer.Exit(OK if ok else FAILED)


def tell_error(message: str, code: str, *, as_json: bool) -> None:
    """An error, where its reader looks for it."""
    if as_json:
        told = {"ok": False, "error": {"code": code, "message": message}}
        _held[:] = [json.dumps(told, indent=2)]
    else:
        _say(f"error: {message}", err=True)


def tell_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """A warning without the line of the library it was raised in."""
    _say(f"warning: {message}", err=True)


def check_function(asset: object, functions: Collection[str], wanted: str) -> None:
    """Refuse the name of a function that the asset has not, with those that it has."""
    if wanted not in functions:
        raise typer.BadParameter(
            f"{asset} has no function {wanted!r}; there are {list(functions)}: try  --function"
        )


def plain(value: Any) -> Any:
    """What JSON can hold: paths and numbers that it lacks become strings."""
    if isinstance(value, dict):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def table(rows: Sequence[Sequence[Any]], indent: str = "  ") -> list[str]:
    """Lines with their columns one under the other."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
