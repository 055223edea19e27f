"""Output of commands: text or JSON, and the exit codes."""

from __future__ import annotations

import difflib
import json
import math
import os
import re
import sys
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any, NoReturn, TextIO

import typer

from ..errors import cut_lines
from ..formatting import counted as counted
from ..formatting import size as size

OK, FAILED, USAGE, ERROR, INTERRUPTED = 0, 1, 2, 3, 130

Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Size = Annotated[
    list[str] | None,
    typer.Option(
        "--size",
        help="Dynamic sizes by name, as h=480,w=640, or one number for all; "
        "without it those of the example inputs.",
    ),
]
Inputs = Annotated[
    list[str] | None,
    typer.Option(
        "--input",
        "-i",
        help="An example input, as x=f32[1,3,224,224]; n:4 is a dynamic size, "
        "i64[1,9]<1000 are integers below 1000, x=@file.npy is a file.",
    ),
]
Source = Annotated[
    str,
    typer.Argument(
        help="An exported program (.pt2), package.module:factory, file.py:factory, or "
        "transformers:FOLDER of a model that save_pretrained wrote.",
        show_default=False,
    ),
]
Checkpoint = Annotated[
    Path | None,
    typer.Option(help="Weights for the factory's model: .pt, .pth, .bin or .safetensors."),
]
DType = Annotated[
    str, typer.Option(help="Convert the model and its float inputs: float16, bfloat16, float32.")
]


def _known_target(given: str) -> str:
    from ..targets.rewrites.applying import TARGETS

    if given and given not in TARGETS:
        known = ", ".join(TARGETS)
        raise typer.BadParameter(f"{given!r} is an unknown target; pass one of {known}")
    return given


Target = Annotated[
    str,
    typer.Option(
        help="Rewrite what fails on neural_engine, gpu, cpu, or any of them; linux emits the forms "
        "that its runtime runs fastest.",
        callback=_known_target,
    ),
]
Exact = Annotated[
    bool, typer.Option("--exact", help="Guard infinities, NaN and overflow at any cost.")
]

Force = Annotated[
    bool, typer.Option("--force", help="Delete what is at the output path, whatever it is.")
]


class Verify(StrEnum):
    """How much of a program is compared with PyTorch."""

    QUICK = "quick"
    FULL = "full"
    ACCEPT_UNJUDGED = "accept-unjudged"
    NONE = "none"


_pending: list[str] = []  # JSON output, printed after everything else


@contextmanager
def json_only_stdout(as_json: bool) -> Iterator[None]:
    """Reserve standard output for JSON: send everything that models print to standard error."""
    if not as_json:
        yield
        return
    _pending.clear()
    kept = _redirect_native_stdout()
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        if kept is not None:
            os.dup2(kept, 1)
            os.close(kept)
    for text in _pending:
        _print(text)


def _redirect_native_stdout() -> int | None:
    """Redirect file descriptor 1, which native code prints to; return a copy of it, or None."""
    if sys.stdout is None or sys.stderr is None:  # closed by the caller: 1 and 2 may be other files
        return None
    try:
        sys.stdout.flush()
        kept = os.dup(1)
        os.dup2(2, 1)
    except OSError:
        return None
    return kept


def _print(text: str, *, err: bool = False) -> None:
    """Print; ignore a closed pipe, as after `| head`."""
    try:
        typer.echo(text, err=err)
    except BrokenPipeError:
        with suppress(OSError):  # else Python raises when it flushes the stream at exit
            os.dup2(os.open(os.devnull, os.O_WRONLY), (sys.stderr if err else sys.stdout).fileno())


def answer(data: dict[str, Any], text: str | Iterable[str], *, as_json: bool, ok: bool) -> NoReturn:
    """Print the result, and exit with code 0 or 1."""
    if as_json:
        _pending.append(json.dumps(to_json({"ok": ok, **data}), indent=2, allow_nan=False))
    else:
        _print(text if isinstance(text, str) else "\n".join(text))
    raise typer.Exit(OK if ok else FAILED)


def print_error(message: str, code: str, *, as_json: bool) -> None:
    """Print an error to standard error, or as JSON."""
    if as_json:
        data = {"ok": False, "error": error_data(message, code)}
        _pending[:] = [json.dumps(data, indent=2)]
    else:
        _print(f"error: {message}", err=True)


def error_data(message: str, code: str) -> dict[str, str | None]:
    """Return the keys that every error has in JSON: code, message, hint, at."""
    text = message.removesuffix(f"\n  code  {code}").removeprefix("Invalid value: ")
    problem, hint, at = [], None, None
    for block in re.split(r"\n(?=  (?:try|at)   )", text):
        kind, line = (block[2:8].strip(), block[8:]) if block[:2] == "  " else ("", block)
        line = re.sub(r"\n {8}", "\n", line)
        if kind == "try":
            hint = hint or line.partition("\n")[0]
        elif kind == "at":
            at = at or line
        if not kind or text.count("\n  try   ") > 1:  # several errors in one keep all their lines
            problem.append(block)
    shown = "\n".join(problem)
    if hint is None and (usage := re.search(r"[;:,.]? try  (?P<hint>\S.*)$", shown)):
        shown, hint = shown[: usage.start()], usage["hint"]
    return {"code": code, "message": shown, "hint": hint, "at": at}


def print_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    """Print a warning without the source line that raised it."""
    _print(f"warning: {cut_lines(str(message))}", err=True)


def nearest(name: str, known: Iterable[str]) -> str:
    """Return a question that names the most similar known name, or an empty string."""
    found = difflib.get_close_matches(name, list(known), 1)
    return f"; did you mean {found[0]!r}?" if found else ""


def check_asset_path(path: Path, overwrite: bool) -> None:
    """Reject the path of an asset that cannot be written; this is wrong usage."""
    from ..asset.program import check_path
    from ..errors import ConversionError, OverwriteError

    try:
        check_path(path, overwrite=overwrite)
    except OverwriteError:
        raise
    except ConversionError as error:
        data = error_data(str(error), error.code)
        raise typer.BadParameter(f"{data['message']}; try  {data['hint']}") from error


def check_function(asset: object, functions: Collection[str], wanted: str) -> None:
    """Reject a function that the asset does not have; list those that it has."""
    if wanted not in functions:
        raise typer.BadParameter(
            f"{asset} has no function {wanted!r}; it has {list(functions)}"
            f"{nearest(wanted, functions)}; try  --function {next(iter(functions), 'main')}"
        )


def to_json(value: Any) -> Any:
    """Convert to types that JSON has: paths, NaN and infinities become strings."""
    if isinstance(value, dict):
        return {str(k): to_json(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [to_json(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value if isinstance(value, str | int | float | bool | None) else str(value)


def table(rows: Sequence[Sequence[Any]], indent: str = "  ") -> list[str]:
    """Return lines with aligned columns."""
    cells = [[str(cell) for cell in row] for row in rows]
    if not cells:
        return []
    widths = [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]
    return [
        indent
        + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in cells
    ]
