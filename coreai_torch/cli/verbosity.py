"""The options -q and -v, which every command takes."""

from __future__ import annotations

import functools
import inspect
import logging
import os
import warnings
from collections.abc import Callable, Sequence
from typing import Annotated, Any

import typer

from .. import progress

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print no progress and no warnings.")]
Verbose = Annotated[
    bool, typer.Option("--verbose", "-v", help="Print torch's log lines and all tracebacks.")
]
_OPTIONS = {"quiet": Quiet, "verbose": Verbose}


# Printed when transformers imports torchao, in every version of torch and torchao.
_CHATTY_LOGGERS = ("torchao", "torch.utils._pytree")


def silence_libraries(arguments: Sequence[str]) -> None:
    """Hide log lines and progress bars of other libraries unless -v or a variable enables them."""
    if {"-v", "--verbose"} & set(arguments):
        return
    os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")  # transformers reads it too
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    if not os.environ.get("TORCH_LOGS"):
        for name in _CHATTY_LOGGERS:
            logging.getLogger(name).setLevel(logging.ERROR)


def apply_verbosity(quiet: bool, verbose: bool) -> None:
    """Apply the options; the last of several calls wins."""
    if not (quiet or verbose):
        return
    progress.set_verbosity(quiet=quiet, verbose=verbose)
    warnings.simplefilter("ignore" if quiet else "default")


def with_verbosity(command: Callable[..., None]) -> Callable[..., None]:
    """Return the command with the options -q and -v."""

    @functools.wraps(command)
    def run(*args: Any, quiet: bool = False, verbose: bool = False, **given: Any) -> None:
        apply_verbosity(quiet, verbose)
        command(*args, **given)

    signature = inspect.signature(command, eval_str=True)
    added = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=False, annotation=kind)
        for name, kind in _OPTIONS.items()
    ]
    full = signature.replace(parameters=[*signature.parameters.values(), *added])
    vars(run)["__signature__"] = full  # typer reads it
    run.__annotations__ = {n: p.annotation for n, p in full.parameters.items()}
    return run
