"""A crash of a child costs one sample: the others get their verdicts from further tasks."""

from __future__ import annotations

import json

import pytest

from tests.sweep import entries, plan
from tests.sweep.outcome import Kind


@pytest.fixture(autouse=True)
def without_database(monkeypatch):
    monkeypatch.setattr(entries, "samples", lambda name, dtype: list(range(9)))
    monkeypatch.setattr(entries, "text", lambda sample: f"sample {sample}")


def _rows(jobs, crashing, batch=4):
    """Act as the fleet: judge the samples of each job in batches, up to one that crashes."""
    for job in jobs:
        chosen = job.samples or {dtype: list(range(most)) for dtype, most in job.most.items()}
        every = [(dtype, index) for dtype, indices in chosen.items() for index in indices]
        details, verdict = {"chosen": chosen}, "pass"
        for start in range(0, len(every), batch):
            now = every[start : start + batch]
            details["trying"] = now
            if crashing & set(now):
                verdict = "crash"
                break
            details |= {f"{dtype} {index}": ["pass", "", ""] for dtype, index in now}
        ended = {"cause": "SIGABRT", "message": "assertion\nfailed"} if verdict == "crash" else {}
        row = {"verdict": verdict, "cause": "", "message": "", "details": json.dumps(details)}
        yield job, {**row, **ended}


@pytest.mark.parametrize(
    "crashing", [set(), {("f32", 0)}, {("f32", 5), ("int64", 2)}, {("f32", 4), ("f32", 5)}]
)
def test_every_sample_has_one_verdict(crashing):
    job = plan.Job("add", {"int64": 3, "f32": 7})
    (result,) = plan.results([job], lambda jobs: _rows(jobs, crashing))
    places = [(v.dtype, v.index) for v in result.verdicts]
    assert places == [*(("int64", i) for i in range(3)), *(("f32", i) for i in range(7))]
    aborted = {(v.dtype, v.index) for v in result.verdicts if v.outcome.kind is Kind.ABORT}
    assert aborted == crashing
    details = {v.outcome.detail for v in result.verdicts if v.outcome.kind is Kind.ABORT}
    assert details <= {"SIGABRT: assertion | failed"}


def test_crash_before_the_first_sample_is_a_verdict_on_the_entry():
    row = {"verdict": "memory", "cause": "memory limit", "message": "", "details": ""}
    (result,) = plan.results([plan.Job("add", {"f32": 3})], lambda jobs: [(jobs[0], row)])
    assert [(v.index, v.outcome.kind) for v in result.verdicts] == [(-1, Kind.ABORT)]


def test_entry_whose_worker_was_lost_has_no_result():
    row = {"verdict": "lost", "cause": "", "message": "", "details": ""}
    assert plan.results([plan.Job("add", {"f32": 3})], lambda jobs: [(jobs[0], row)]) == []


def test_tasks_of_a_plan_have_the_entries_as_ids():
    jobs = [plan.Job("add", {"f32": None}), plan.Job("sum", samples={"f32": [2]}, name="sum f32#2")]
    first, second = plan.plan(jobs).tasks()
    assert (first.id, first.config["most"]) == ("add", {"f32": None})
    assert (second.id, second.config["alone"], second.limits.seconds) == (
        "sum f32#2",
        True,
        plan.PATIENCE,
    )
