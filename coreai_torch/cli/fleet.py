"""`coreai-torch fleet`: convert and verify many models as one job."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import ExitStack
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import Json, answer, counted, error_data
from .verbosity import with_verbosity

if TYPE_CHECKING:
    from ..fleet.running import RunSummary

HELP = """Convert and verify many models as one job, on this machine or on a Dask cluster.

\b
  coreai-torch fleet run    nightly.yaml -o results --workers 4
  coreai-torch fleet run    nightly.yaml -o results --scheduler tcp://10.0.0.1:8786
  coreai-torch fleet run    nightly.yaml -o results --retry failed
  coreai-torch fleet report results -o report.html --before yesterday
  coreai-torch fleet diff   yesterday results
"""
_RUN = """Run the tasks of a plan that are not done; exit with code 1 if a task did not pass.

\b
  coreai-torch fleet run nightly.yaml -o results
  coreai-torch fleet run nightly.yaml -o results --workers 4 --memory 32
  coreai-torch fleet run nightly.yaml -o results --scheduler tcp://10.0.0.1:8786

Each task runs in a child process with limits on time and memory. Results are written to
results/results.parquet. A task is skipped if it is done and its model, its weights, its options and
this package did not change.
"""
_REPORT = """Write a page about a run: totals, failures by cause, histograms, a table.

\b
  coreai-torch fleet report results -o report.html
  coreai-torch fleet report results -o report.html --before yesterday
"""
_DIFF = """Compare two runs; exit with code 1 if a task broke.

\b
  coreai-torch fleet diff yesterday results
  coreai-torch fleet diff yesterday results --slower 2 --strict
"""

_NAMED = 5  # tasks of a cause that are named
_CAUSES = 5  # that are printed after a run

app = typer.Typer(help=HELP, no_args_is_help=True, rich_markup_mode=None)
_Results = Annotated[
    Path, typer.Argument(help="The folder of a run, or its results.parquet.", show_default=False)
]


class Retry(StrEnum):
    """Which tasks run again although nothing changed."""

    LOST = "lost"
    FAILED = "failed"


@app.command("run", help=_RUN, no_args_is_help=True)
@with_verbosity
def run(
    plan: Annotated[Path, typer.Argument(help="A plan in YAML or JSON.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder of the results.")],
    workers: Annotated[
        int, typer.Option(min=0, help="Local worker processes; 0 runs one task at a time.")
    ] = 0,
    scheduler: Annotated[str, typer.Option(help="The address of a Dask scheduler.")] = "",
    memory: Annotated[
        float, typer.Option(min=0, help="GB that the local workers share; default: all.")
    ] = 0.0,
    retry: Annotated[
        Retry, typer.Option(help="Run again: failed tasks, or only those whose worker was lost.")
    ] = Retry.LOST,
    as_json: Json = False,
) -> None:
    """Run a plan."""
    from .. import fleet
    from ..errors import PlanError
    from ..fleet.display import displayed

    try:
        read = fleet.load_plan(plan)
    except PlanError as error:
        data = error_data(str(error), error.code)
        raise typer.BadParameter(f"{data['message']}; try  {data['hint']}") from error
    if workers and scheduler:
        raise typer.BadParameter("--workers and --scheduler exclude each other; pass one of them")
    total = sum(1 for _ in read.tasks())
    with ExitStack() as stack:
        engine = stack.enter_context(_engine(workers, scheduler, memory))
        if engine.dashboard:
            typer.echo(f"dashboard: {engine.dashboard}", err=True)
        if not engine.workers:
            typer.echo(f"no worker is connected to {scheduler}: waiting for one", err=True)
        observer = stack.enter_context(displayed(total, engine))
        summary = fleet.run(
            read,
            output,
            engine=engine,
            retry_failed=retry is Retry.FAILED,
            observer=observer,
        )
    _answer(summary, as_json)


def _engine(workers: int, scheduler: str, memory: float) -> Any:
    if workers or scheduler:
        from ..fleet.dask_engine import DaskEngine

        return DaskEngine(scheduler, workers, memory)
    from ..fleet.local_engine import LocalEngine

    return LocalEngine()


def _answer(summary: RunSummary, as_json: bool) -> None:
    data = {
        "tasks": summary.total,
        "skipped": summary.skipped,
        "skipped_failed": summary.skipped_failed,
        "verdicts": dict(summary.verdicts),
        "causes": [
            {
                "verdict": verdict,
                "cause": cause,
                "tasks": count,
                "ids": summary.examples[verdict, cause],
            }
            for (verdict, cause), count in summary.causes.most_common()
        ],
        "folder": summary.folder,
    }
    verdicts = ", ".join(f"{count} {verdict}" for verdict, count in summary.verdicts.most_common())
    skipped = f", {summary.skipped} were done before" if summary.skipped else ""
    if summary.skipped_failed:
        skipped += f" ({summary.skipped_failed} did not pass: pass --retry failed to repeat them)"
    line = f"{summary.folder}: {counted(summary.total, 'task')}{skipped}: {verdicts or 'none ran'}"
    answer(data, [line, *_causes(summary)], as_json=as_json, ok=summary.ok)


def _causes(summary: RunSummary) -> Iterator[str]:
    """Yield the most frequent causes, and where to see the rest."""
    for (verdict, cause), count in summary.causes.most_common(_CAUSES):
        yield f"{count:>6} {verdict}: {cause or 'no cause'}"
        names = summary.examples[verdict, cause]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        yield f"       {', '.join(names[:_NAMED])}{more}"
    if summary.causes:
        yield f"  see   coreai-torch fleet report {summary.folder} -o report.html"


@app.command("report", help=_REPORT, no_args_is_help=True)
@with_verbosity
def report(
    results: _Results,
    output: Annotated[Path, typer.Option("--output", "-o", help="The page to write.")],
    before: Annotated[Path | None, typer.Option(help="The folder of an earlier run.")] = None,
    as_json: Json = False,
) -> None:
    """Write a page."""
    from ..fleet import write_report

    path = write_report(results, output, before=before)
    answer({"output": path}, str(path), as_json=as_json, ok=True)


@app.command("diff", help=_DIFF, no_args_is_help=True)
@with_verbosity
def diff(
    before: _Results,
    after: _Results,
    slower: Annotated[
        float, typer.Option(min=1, help="Ratio of times from which on a task is slower.")
    ] = 1.5,
    strict: Annotated[
        bool, typer.Option("--strict", help="Exit with 1 for slower and missing tasks too.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Compare two runs."""
    from ..fleet import compare

    found = compare(before, after, slower=slower)
    ok = found.ok and not (strict and (found.slower or found.missing))
    answer(dataclasses.asdict(found), found.lines(), as_json=as_json, ok=ok)
