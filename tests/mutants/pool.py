"""Run units in child processes, each restarted if it crashes or hangs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from coreai_torch.sandbox.channel import Channel
from coreai_torch.sandbox.child import Child, Ended, Limits
from tests.worker_threads import run_jobs

PATIENCE = 420.0  # seconds that a unit may take

Result = tuple[str, list[dict[str, Any]]]  # the name of a unit, and its outcomes


class Worker:
    """A process that runs units one after the other; started on first use."""

    def __init__(self, mode: str) -> None:
        self._mode = mode
        self._child: Child | None = None

    def run(self, name: str) -> list[dict[str, Any]]:
        """Return the outcomes of a unit; a crash is the last of them."""
        if self._child is None or not self._child.alive:
            self.close()
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._child = Child.spawn(f"{__name__}:serve", self._mode, environment=environment)
        outcomes: list[dict[str, Any]] = []
        limits = Limits(seconds=PATIENCE)
        self._child.send(name)
        try:
            while (found := self._child.receive(limits)) is not None:
                outcomes.append(found)
        except Ended as ended:
            crash = {"unit": name, "op": "", "node": "", "depth": 0.0, "kind": "none"}
            crash |= {"outcome": "crashed", "detail": f"the process {ended.why}", "seconds": 0.0}
            outcomes.append(crash)
        return outcomes

    def close(self) -> None:
        """End the process."""
        if self._child is not None:
            self._child.close()


def serve(channel: Channel, mode: str) -> None:
    """Answer the names of units with their outcomes, and then None."""
    warnings.simplefilter("ignore")
    import torch

    from . import honest, judging, programs, run

    torch.set_num_threads(1)
    import lean_torch  # found through the path that `programs` extends

    lean_torch.make_lean()
    judging.use_interpreter()
    units = {u.name: u for u in programs.units()} if mode == "mutants" else {}
    for name in channel:
        found = run.run(units[name]) if mode == "mutants" else iter([honest.run(name)])
        try:
            for outcome in found:
                channel.send(asdict(outcome))
        except Exception as error:
            broken = run.Outcome(name, "", "", 0.0, "none", run.BROKEN, repr(error)[:300])
            channel.send(asdict(broken))
        channel.send(None)


def run_all(names: Sequence[str], workers: int, mode: str) -> Iterator[Result]:
    """Yield the outcomes of each unit as they are ready."""
    return run_jobs(
        names, workers, lambda: Worker(mode), lambda worker, name: (name, worker.run(name))
    )
