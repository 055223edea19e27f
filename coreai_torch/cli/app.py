"""The commands, put together; nothing here imports torch."""

from __future__ import annotations

import sys
import traceback
import warnings
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from . import bench, check, convert, diff, doctor, inspect, ops, report, run, strip, verify
from .console import ERROR, INTERRUPTED, USAGE, alone, tell_error, tell_warning

_HELP = """Convert PyTorch models to Core AI, and hold them to torch's numbers.

\b
  coreai-torch check   models.py:net --input "x=f32[1,3,224,224]"
  coreai-torch convert models.py:net --input "x=f32[1,3,224,224]" -o net.aimodel
  coreai-torch verify  models.py:net net.aimodel --input "x=f32[1,3,224,224]"
  coreai-torch inspect net.aimodel
  coreai-torch report  net.aimodel -o net.html
  coreai-torch run     net.aimodel x=photo.png -o scores.npz

Every command takes --json. Exit codes: 0 done and right, 1 a check failed, 2 a wrong call,
3 it could not be done (the message ends in a code that docs/errors.md explains).
"""

app = typer.Typer(
    help=_HELP,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
for _command in (convert, check, verify, inspect, report, run, bench, diff, ops, strip, doctor):
    _name = _command.__name__.rpartition(".")[2]
    app.command(_name, help=_command.HELP, no_args_is_help=_name not in ("ops", "doctor"))(
        getattr(_command, _name)
    )


_WRONG_PATHS = (
    FileNotFoundError,
    FileExistsError,
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
)
# Typer has a copy of click of its own from some version on, and exports this one class of it not.
_ClickException: Any = next(c for c in typer.BadParameter.__mro__ if c.__name__ == "ClickException")


@app.callback(invoke_without_command=True)
def _root(
    version: Annotated[bool, typer.Option("--version", help="Tell the version and leave.")] = False,
) -> None:
    if version:
        from .. import __version__

        typer.echo(__version__)
        raise typer.Exit


def main(arguments: Sequence[str] | None = None) -> None:
    """The console script; leaves with the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    warnings.filterwarnings("ignore", category=FutureWarning)  # torch's, of its own code
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    warnings.showwarning = tell_warning
    with alone(as_json):
        code = _outcome(given, as_json)
    raise SystemExit(code)


def _outcome(given: list[str], as_json: bool) -> int:
    try:
        left = int(app(given, standalone_mode=False, prog_name="coreai-torch") or 0)
        if left == INTERRUPTED:  # some versions of typer take the interruption for themselves
            raise KeyboardInterrupt
        return left
    except _ClickException as wrong:
        if as_json:
            tell_error(wrong.format_message(), "usage", as_json=True)
        else:
            wrong.show()
        return USAGE
    except (typer.Abort, KeyboardInterrupt) as left:
        if isinstance(left.__cause__, EOFError):  # typer takes a file that ends early for Ctrl-D
            return _failed(left.__cause__, as_json)
        tell_error("interrupted; nothing was left half-written", "interrupted", as_json=as_json)
        return INTERRUPTED
    except _WRONG_PATHS as wrong:
        tell_error(str(wrong), "usage", as_json=as_json)
        return USAGE
    except SystemExit as left:  # a model's own; handed on, its 0 would say that all is well
        from ..errors import ModelCodeError

        told = f"the model called sys.exit({left.code!r})\n  try   a forward that returns"
        return _failed(ModelCodeError(told), as_json)
    except Exception as error:
        return _failed(error, as_json)


def _failed(error: BaseException, as_json: bool) -> int:
    """Tell an error with its stable code; one that has none is a bug and keeps its traceback."""
    code = getattr(error, "code", None)
    if isinstance(code, str) and code.startswith("CAT"):
        tell_error(str(error), code, as_json=as_json)
        return ERROR
    if not isinstance(error, OSError):  # a full disk is nobody's bug
        traceback.print_exception(error)
    told = f"{type(error).__name__}: {error}\n  code  CAT100"
    tell_error(told, "CAT100", as_json=as_json)
    return ERROR
