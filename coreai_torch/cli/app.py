"""The command-line app and its exit codes; this module does not import torch."""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from collections.abc import Sequence
from errno import EDQUOT, ENOSPC
from typing import Annotated, Any

import typer

from .. import progress
from ..errors import REPORT_HINT, AssetError, NamingError, NativeError, SaveError
from ..sandbox.command import can_supervise, supervised
from . import (
    bench,
    check,
    compress,
    convert,
    device_check,
    diff,
    doctor,
    fleet,
    inspect,
    lint,
    llm,
    llm_running,
    ops,
    place,
    report,
    run,
    split,
    strip,
    swift,
    verify,
)
from .console import ERROR, INTERRUPTED, USAGE, json_only_stdout, print_error, print_warning
from .interruption import accept_interruption, was_interrupted
from .verbosity import Quiet, Verbose, apply_verbosity, silence_libraries, with_verbosity

_HELP = """Convert PyTorch models to Core AI, and check their numbers against PyTorch.

\b
  coreai-torch check    models.py:net --input "x=f32[1,3,224,224]"
  coreai-torch convert  models.py:net --input "x=f32[1,3,224,224]" -o net.aimodel
  coreai-torch compress models.py:net --input "x=f32[1,3,224,224]" --scheme int8 -o net.aimodel
  coreai-torch verify   models.py:net net.aimodel --input "x=f32[1,3,224,224]"
  coreai-torch inspect  net.aimodel
  coreai-torch report   net.aimodel -o net.html
  coreai-torch run      net.aimodel x=photo.png -o scores.npz
  coreai-torch swift    net.aimodel -o Net.swift

Every command takes --json, -q and -v. Exit codes: 0 success, 1 a check failed, 2 wrong usage, 3 the
command failed (the message ends in a code that docs/errors.md explains).
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (
    convert,
    compress,
    check,
    verify,
    inspect,
    lint,
    place,
    device_check,
    report,
    run,
    bench,
    diff,
    ops,
    strip,
    split,
    swift,
    doctor,
):
    _name = _command.__name__.rpartition(".")[2]
    app.command(
        _name.replace("_", "-"), help=_command.HELP, no_args_is_help=_name not in ("ops", "doctor")
    )(with_verbosity(getattr(_command, _name)))
app.command(
    "generate", help=llm_running.GENERATE.replace("llm generate", "generate"), no_args_is_help=True
)(with_verbosity(llm_running.generate))
app.add_typer(llm.app, name="llm")
app.add_typer(fleet.app, name="fleet")

_COMPLETION, _COMPLETE = ("--show-completion", "--install-completion"), "_COREAI_TORCH_COMPLETE"
_WRONG_PATHS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
# Newer versions of typer vendor click and do not export ClickException.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    quiet: Quiet = False,
    verbose: Verbose = False,
) -> None:
    apply_verbosity(quiet, verbose)
    if version:
        from .. import __version__

        typer.echo(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the console script and exit with its exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    warnings.filterwarnings("ignore", category=FutureWarning)  # raised inside torch
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.showwarning = print_warning
    progress.set_verbosity()
    silence_libraries(given)
    if arguments is None and can_supervise():
        raise SystemExit(supervised(lambda: _run(given), lambda crash: _crashed(crash, as_json)))
    raise SystemExit(_run(given))


def _run(given: list[str]) -> int:
    with json_only_stdout("--json" in given):
        return _outcome(given, "--json" in given)


def _crashed(crash: NativeError, as_json: bool) -> int:
    with json_only_stdout(as_json):
        return _failed(crash, as_json)


def _outcome(given: list[str], as_json: bool) -> int:
    try:
        accept_interruption()
        code = int(app(given, standalone_mode=False, prog_name="coreai-torch") or 0)
        if code == INTERRUPTED:  # some versions of typer handle the interruption
            raise KeyboardInterrupt
        return code
    except _ClickException as usage:
        if as_json:
            print_error(usage.format_message(), "usage", as_json=True)
        else:
            usage.show()
        return USAGE
    except (typer.Abort, KeyboardInterrupt) as abort:
        if isinstance(abort.__cause__, EOFError):  # typer takes a truncated file for Ctrl-D
            return _failed(abort.__cause__, as_json)
        return _interrupted(given, as_json)
    except _WRONG_PATHS as wrong:
        print_error(str(wrong), getattr(wrong, "code", "usage"), as_json=as_json)
        return USAGE
    except SystemExit as stop:
        if any(word in _COMPLETION for word in given) or _COMPLETE in os.environ:
            return int(stop.code or 0)  # printed what a shell asked for
        # Raised by the model; passing on its 0 would mean success.
        from ..errors import ModelCodeError

        message = f"the model called sys.exit({stop.code!r})\n  try   return from forward instead"
        return _failed(ModelCodeError(message), as_json)
    except Exception as error:
        # Native code may drop an interruption and fail later: numpy 2.4, interrupted while
        # ml_dtypes imports it, raises a RecursionError.
        return _interrupted(given, as_json) if was_interrupted() else _failed(error, as_json)


def _interrupted(given: list[str], as_json: bool) -> int:
    kept = "run the same command again to continue"
    state = kept if given[0] == "fleet" else "no partial file was written"
    print_error(f"interrupted; {state}", "interrupted", as_json=as_json)
    return INTERRUPTED


def _failed(error: BaseException, as_json: bool) -> int:
    """Print an error with its code; an error without a code is a bug and keeps its traceback."""
    code = getattr(error, "code", None)
    if isinstance(code, str) and code.startswith("CAT"):
        if progress.is_verbose():
            traceback.print_exception(error)
        print_error(str(error), code, as_json=as_json)
        # Names and paths come from the command line.
        return USAGE if isinstance(error, NamingError | AssetError) else ERROR
    if isinstance(error, OSError) and error.errno in (ENOSPC, EDQUOT):
        where = f" {error.filename}" if error.filename else ""
        hint = "free disk space, or pass another output path"
        return _failed(SaveError(f"cannot write{where}: {error.strerror}\n  try   {hint}"), as_json)
    if not isinstance(error, OSError):  # a broken disk or connection is not a bug
        traceback.print_exception(error)
    frames = traceback.extract_tb(error.__traceback__)
    at = f'\n  at    File "{frames[-1].filename}", line {frames[-1].lineno}' if frames else ""
    message = f"{type(error).__name__}: {error}{at}\n  try   {REPORT_HINT}\n  code  CAT100"
    print_error(message, "CAT100", as_json=as_json)
    return ERROR
