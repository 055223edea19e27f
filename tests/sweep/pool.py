"""Workers that outlive what they judge: one child each, started again when a sample kills it."""

from __future__ import annotations

import multiprocessing
import os
import queue
import tempfile
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from . import entries, worker
from .outcome import Kind, Outcome, Verdict

PATIENCE = 300  # seconds that a sample may take; a batch gets five more for each sample


Job = tuple[str, dict[str, int | None]]  # an entry, and how many samples of which dtypes at most
Samples = set[tuple[str, int]]  # by dtype and number


@dataclass
class Result:
    """The verdicts on one entry."""

    entry: str
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0  # of a processor, less those of children that died

    def of(self, dtype: str) -> list[Verdict]:
        return [v for v in self.verdicts if v.dtype == dtype]


class Worker:
    """One child process and the pipe to it."""

    def __init__(self, method: str = "forkserver") -> None:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        os.environ["SWEEP_WARM"] = "1"
        self._context: Any = multiprocessing.get_context(method)
        if method == "forkserver":  # has torch loaded: a new child would take five seconds
            self._context.set_forkserver_preload(["tests.sweep.worker"])
        self._folder = tempfile.TemporaryDirectory()
        self._log = Path(self._folder.name) / "stderr"
        self._process: Any = None

    def judge(self, entry: str, most: dict[str, int | None]) -> Result:
        """Every sample of an entry gets a verdict, whatever happens to the child.

        Of each dtype named in `most` so many samples, or all for None.
        """
        result = Result(entry)
        left, suspects = self._send((entry, most), set(), result)
        while left:
            at_once = suspects or left
            left, suspects = self._send((entry, _by_dtype(at_once), bool(suspects)), left, result)
        result.verdicts.sort(key=lambda v: (list(most).index(v.dtype), v.index))
        return result

    def close(self) -> None:
        self._stop()
        self._folder.cleanup()

    def _send(self, job: Any, left: Samples, result: Result) -> tuple[Samples, Samples]:
        """Run a job; gives the samples still to do, and those to be tried one by one first."""
        self._start()
        self._pipe.send(job)
        at_stake: list[tuple[str, int]] = []
        while True:
            message = self._receive(PATIENCE + 5 * len(at_stake))
            if isinstance(message, Outcome):
                return self._after_death(message, left, at_stake, result, job[1])
            word, content = message
            if word == "chosen":
                left = {(dtype, i) for dtype, indices in content.items() for i in indices}
            elif word == "trying":
                at_stake = content
            elif word == "verdict":
                result.verdicts.append(content)
                left = left - {(content.dtype, content.index)}
            else:
                goes_on, seconds = content
                result.seconds += seconds
                if not goes_on:
                    self._stop()
                return left, set()

    def _start(self) -> None:
        if self._process is None:
            self._pipe, theirs = self._context.Pipe()
            self._process = self._context.Process(
                target=worker.serve, args=(theirs, str(self._log)), daemon=True
            )
            self._process.start()
            theirs.close()

    def _after_death(
        self, outcome: Outcome, left: Samples, at_stake: list[Any], result: Result, wanted: Any
    ) -> tuple[Samples, Samples]:
        if not at_stake:
            first = next(iter(wanted))
            result.verdicts.append(Verdict(first, -1, outcome, "while the samples were made"))
            return set(), set()
        undecided = left & set(at_stake)
        if len(undecided) != 1:
            return left, undecided
        ((dtype, index),) = undecided
        text = entries.text(entries.samples(result.entry, dtype)[index])
        result.verdicts.append(Verdict(dtype, index, outcome, text))
        return left - undecided, set()

    def _receive(self, patience: float) -> Any:
        try:
            if self._pipe.poll(patience):
                return self._pipe.recv()
            outcome = Outcome(Kind.ABORT, f"no answer in {patience:.0f} s")
        except (EOFError, ConnectionError):
            self._process.join(10)
            outcome = Outcome(Kind.ABORT, f"exit code {self._process.exitcode}: {self._last()}")
        self._stop()
        return outcome

    def _last(self) -> str:
        """The last that the child wrote on stderr, less the runtime's greetings."""
        lines = self._log.read_text(errors="replace").splitlines()
        telling = [line for line in lines if line.strip() and "ODIE [default]" not in line]
        return " | ".join(telling[:2] + telling[2:][-1:])[:300]

    def _stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
            self._process = None


def _by_dtype(samples: Samples) -> dict[str, list[int]]:
    return {
        dtype: sorted(index for d, index in samples if d == dtype)
        for dtype in sorted({d for d, _ in samples})
    }


def sweep(jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Judge all jobs, each worker with a child of its own; results come as they are ready."""
    waiting: queue.SimpleQueue[Job | None] = queue.SimpleQueue()
    ready: queue.SimpleQueue[Result | None] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    for _ in range(workers):
        waiting.put(None)

    def work() -> None:
        worker = Worker()
        try:
            while (job := waiting.get()) is not None:
                ready.put(worker.judge(*job))
        finally:
            worker.close()
            ready.put(None)

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(workers):
        while (result := ready.get()) is not None:
            yield result
