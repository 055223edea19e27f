"""The child process that judges samples; the pool restarts it after a crash."""

from __future__ import annotations

import gc
import os
import resource
import sys
import time
import warnings
from typing import Any

import torch

from . import entries
from .judge import judge

LARGEST_MEMORY = 3 << 30  # the runtime leaks the outputs of every call
_IN_BYTES = sys.platform == "darwin"  # unit of ru_maxrss; Linux counts in KiB


def warm_up() -> None:
    """Import what the first export and decomposition import, before a process is forked."""
    entries.entries()
    module = torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.export(module, (torch.ones(1, 2),)).run_decompositions()
    gc.freeze()  # saves a tenth of the time: collections do not scan torch again


def serve(pipe: Any, log: str) -> None:
    """Answer jobs until the pipe closes.

    A job is `(entry, most samples by dtype)`, or `(entry, samples by dtype, alone)`.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    errors = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(errors, 1)
    os.dup2(errors, 2)

    def trying(samples: list[tuple[str, int]]) -> None:
        os.ftruncate(errors, 0)
        pipe.send(("trying", samples))

    while True:
        try:
            name, wanted, *alone = pipe.recv()
        except EOFError:
            return
        start = time.process_time()
        if not alone:
            wanted = {d: entries.chosen(entries.samples(name, d), n) for d, n in wanted.items()}
            pipe.send(("chosen", wanted))
        for verdict in judge(name, wanted, alone=any(alone), trying=trying):
            pipe.send(("verdict", verdict))
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if _IN_BYTES else 1024)
        pipe.send(("done", (used < LARGEST_MEMORY, time.process_time() - start)))


if __name__ == "tests.sweep.worker" and os.environ.get("SWEEP_WARM"):
    warm_up()
