"""Workers with one child process each, which is restarted if a sample crashes it."""

from __future__ import annotations

import multiprocessing
import os
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.worker_threads import run_jobs

from . import entries, worker
from .outcome import Kind, Outcome, Verdict

PATIENCE = 300  # seconds that a sample may take; a batch gets five more for each sample


Job = tuple[str, dict[str, int | None]]  # entry, largest number of samples by dtype
Samples = set[tuple[str, int]]  # (dtype, index)


@dataclass
class Result:
    """The verdicts on one entry."""

    entry: str
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0  # CPU seconds, without those of crashed children

    def of(self, dtype: str) -> list[Verdict]:
        return [v for v in self.verdicts if v.dtype == dtype]


class Worker:
    """One child process and its pipe."""

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
        """Return a verdict for every sample of an entry, also if the child crashes.

        `most` has the largest number of samples of each dtype; None means all.
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
        """Run a job; return the remaining samples, and those to judge one by one first."""
        self._start()
        self._pipe.send(job)
        pending: list[tuple[str, int]] = []
        while True:
            message = self._receive(PATIENCE + 5 * len(pending))
            if isinstance(message, Outcome):
                return self._after_crash(message, left, pending, result, job[1])
            word, content = message
            if word == "chosen":
                left = {(dtype, i) for dtype, indices in content.items() for i in indices}
            elif word == "trying":
                pending = content
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

    def _after_crash(
        self, outcome: Outcome, left: Samples, pending: list[Any], result: Result, wanted: Any
    ) -> tuple[Samples, Samples]:
        if not pending:
            first = next(iter(wanted))
            result.verdicts.append(Verdict(first, -1, outcome, "while creating the samples"))
            return set(), set()
        undecided = left & set(pending)
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
        """Return the last lines of the child's stderr, without the log lines of the runtime."""
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
    """Judge all jobs with several workers; yield results as they finish."""
    return run_jobs(jobs, workers, Worker, lambda worker, job: worker.judge(*job))
