"""A sweep as a fleet run: an entry is a task; further tasks find the samples that crash it."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from coreai_torch import fleet
from coreai_torch.cli.fleet_worker import work
from coreai_torch.fleet.columns import FAIL, LOST, PASS
from coreai_torch.fleet.columns import row as row_of
from coreai_torch.fleet.content import code_digest
from coreai_torch.fleet.guard import run_in_fork
from coreai_torch.fleet.isolating import run_task
from tests.local_workers import local_engine, memory_of_one

from . import entries
from .outcome import Kind, Outcome, Verdict

ROOT = Path(__file__).parents[2]
PATIENCE = 300  # seconds that a sample may take
_ENTRY_PATIENCE = 1800  # and all samples of an entry
_PRELOADED = ["torch", "coreai_torch", "coreai_torch.api", "tests.sweep.preloaded"]

Samples = set[tuple[str, int]]  # (dtype, index)
Row = Mapping[str, Any]
Run = Callable[[list["Job"]], Iterable[tuple["Job", Row]]]


@dataclass(frozen=True)
class Job:
    """Samples of one entry: at most so many of each dtype, or those with an index in `samples`."""

    entry: str
    most: Mapping[str, int | None] = field(default_factory=dict)
    samples: Mapping[str, list[int]] = field(default_factory=dict)
    name: str = ""

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.name or self.entry

    def model(self) -> dict[str, Any]:
        """Return the job as a model of a plan."""
        count = sum(map(len, self.samples.values()))
        seconds = PATIENCE if count == 1 else _ENTRY_PATIENCE
        chosen = {"samples": self.samples} if self.samples else {"most": self.most}
        config = {"entry": self.entry, "alone": count == 1, **chosen}
        limits = {"seconds": seconds}
        return {"name": self.id, "source": self.entry, "config": config, "limits": limits}


@dataclass
class Result:
    """The verdicts on one entry."""

    entry: str
    verdicts: list[Verdict] = field(default_factory=list)
    seconds: float = 0.0  # CPU seconds, without those of crashed children

    def of(self, dtype: str) -> list[Verdict]:
        return [v for v in self.verdicts if v.dtype == dtype]


def plan(jobs: list[Job], workers: int = 1) -> fleet.Plan:
    """Return the plan of jobs."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    data = {
        "models": [job.model() for job in jobs],
        "steps": [{"call": "tests.sweep.tasks:judge_samples"}],
        "limits": {"memory": memory_of_one(workers)},
        "preload": _PRELOADED,
    }
    return fleet.parse_plan(data, folder=ROOT, name="sweep")


def judged(entry: str, most: Mapping[str, int | None], *, fork: bool = False) -> Result:
    """Judge an entry now; `fork` uses forks of this process, which has loaded the database."""

    def run(jobs: list[Job]) -> Iterator[tuple[Job, Row]]:
        for job, task in zip(jobs, plan(jobs).tasks(), strict=True):
            given = replace(task, code=code_digest()).as_dict()
            yield job, row_of(given, run_in_fork(work, given)) if fork else run_task(given)

    (result,) = results([Job(entry, most)], run)
    return result


def judged_by_fleet(
    jobs: list[Job], folder: Path, workers: int, show: Callable[[Result], None]
) -> list[Result]:
    """Judge jobs on several workers; return the results in the Parquet file that this writes."""
    with local_engine(workers) as engine:

        def run(jobs: list[Job]) -> Iterator[tuple[Job, Row]]:
            by_id = {job.id: job for job in jobs}

            def observe(summary: fleet.RunSummary) -> None:
                verdicts, _ = _read(by_id[summary.latest["id"]], summary.latest)
                show(Result(by_id[summary.latest["id"]].entry, verdicts))

            fleet.run(plan(jobs, workers), folder, engine=engine, observer=observe)
            for row in fleet.read_rows(folder):
                if row["id"] in by_id:
                    yield by_id[row["id"]], row

        return results(jobs, run)


def results(jobs: list[Job], run: Run) -> list[Result]:
    """Run jobs, and further ones for the samples that a crash left undecided."""
    found: dict[str, Result] = {}
    order = {job.entry: list(job.most) for job in jobs}
    while jobs:
        further: list[Job] = []
        for job, row in run(jobs):
            verdicts, more = _read(job, row)
            further += more
            if verdicts or more:
                result = found.setdefault(job.entry, Result(job.entry))
                result.verdicts += verdicts
                result.seconds += _details(row).get("cpu", 0.0)
        jobs = further
    for result in found.values():
        dtypes = order[result.entry]
        result.verdicts.sort(key=lambda v: (dtypes.index(v.dtype), v.index))
    return list(found.values())


def _details(row: Row) -> dict[str, Any]:
    return dict(json.loads(row["details"] or "{}"))


def _read(job: Job, row: Row) -> tuple[list[Verdict], list[Job]]:
    """Return the verdicts of a row, and jobs for the samples that have none."""
    details = _details(row)
    verdicts = [
        Verdict(key.split()[0], int(key.split()[1]), Outcome(Kind(value[0]), value[1]), value[2])
        for key, value in details.items()
        if key.partition(" ")[2].isdecimal()
    ]
    if row["verdict"] in (PASS, FAIL):
        return verdicts, []
    if row["verdict"] == LOST:  # the next run judges it
        return [], []
    return _after_crash(job, row, details, verdicts)


def _after_crash(
    job: Job, row: Row, details: dict[str, Any], verdicts: list[Verdict]
) -> tuple[list[Verdict], list[Job]]:
    """Blame the sample that ran if there was one; otherwise judge those that ran one by one."""
    message = " | ".join(str(row["message"]).splitlines())
    outcome = Outcome(Kind.ABORT, f"{row['cause']}: {message}"[:300])
    if not details.get("trying"):
        first = next(iter(job.most or job.samples))
        return [Verdict(first, -1, outcome, "while creating the samples")], []
    chosen = {(d, i) for d, indices in details["chosen"].items() for i in indices}
    left = chosen - {(v.dtype, v.index) for v in verdicts}
    suspects = left & {(dtype, index) for dtype, index in details["trying"]}
    rest = [_job(job, left - suspects, "rest")] if left - suspects else []
    if len(suspects) != 1:
        return verdicts, [*(_job(job, {s}, f"{s[0]}#{s[1]}") for s in sorted(suspects)), *rest]
    ((dtype, index),) = suspects
    text = entries.text(entries.samples(job.entry, dtype)[index])
    return [*verdicts, Verdict(dtype, index, outcome, text)], rest


def _job(job: Job, samples: Samples, name: str) -> Job:
    by_dtype = {
        dtype: sorted(index for d, index in samples if d == dtype)
        for dtype in sorted({d for d, _ in samples})
    }
    return Job(job.entry, samples=by_dtype, name=f"{job.id} {name}")
