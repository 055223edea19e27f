"""Judge each model in a child process, so that a crash affects only that model."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import rewrite_everything

from .judge import Verdict, judge

PATIENCE = 600  # seconds that a model may take on a busy machine

# The fork server imports these once; together they take six seconds.
_PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch._export",
    "torch.export._trace",
    "torch._functorch.aot_autograd",
    "transformers.modeling_utils",
    "coreai_torch",
]


def _serve(pipe: Any, work: Callable[..., Any], *args: Any) -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)  # some libraries print on stderr when imported
    if target := os.environ.get("REWRITES"):
        rewrite_everything.make_default(target)
    pipe.send(work(*args))


def _context() -> Any:
    """Return a fork server that has imported the libraries; it forks a child for each model."""
    for folder in (Path(__file__).parents[1], Path(__file__).parents[2]):
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HF_HUB_OFFLINE"] = "1"
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    return context


def judged(
    name: str,
    dtype: str = "",
    patience: float = PATIENCE,
    work: Callable[..., Verdict] = judge,
) -> Verdict:
    """Return the verdict on one model, also if the child crashes or hangs."""
    context = _context()
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, work, name, dtype), daemon=True)
    process.start()
    theirs.close()
    try:
        if ours.poll(patience):
            return ours.recv()
        failure = f"no answer in {patience:.0f} s"
    except (EOFError, ConnectionError):
        process.join(60)
        code = process.exitcode or 0
        failure = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    finally:
        process.kill()
        process.join()
        ours.close()
    return Verdict(name, failure)
