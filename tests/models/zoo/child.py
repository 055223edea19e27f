"""Judge models in child processes of a fleet run, so that a crash affects only that model."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from coreai_torch import fleet
from coreai_torch.fleet.columns import LOST
from coreai_torch.fleet.content import Hasher
from coreai_torch.fleet.display import displayed
from coreai_torch.fleet.isolating import run_task

from .judge import Verdict

PATIENCE = 600  # seconds that a model may take on a busy machine
_FOLDER = Path(__file__).parents[1]
_MEMORY = 12.0  # GB of a model that is judged alone

# Imported once for all models; together they take six seconds.
_PRELOADED = [
    "torch",
    "torch._dynamo",
    "torch._export",
    "torch.export._trace",
    "torch._functorch.aot_autograd",
    "transformers.modeling_utils",
    "coreai_torch",
]


def plan(
    names: Iterable[str],
    dtype: str = "",
    patience: float = PATIENCE,
    work: str = "judge",
    memory: float = _MEMORY,
) -> fleet.Plan:
    """Return the plan that judges models with a function of `fleet_judge.py`."""
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ["HF_HUB_OFFLINE"] = "1"
    data = {
        "models": [{"source": name, "config": {"dtype": dtype}} for name in names],
        "steps": [{"call": f"fleet_judge:{work}"}],
        "limits": {"seconds": patience, "memory": memory},
        "preload": _PRELOADED,
    }
    return fleet.parse_plan(data, folder=_FOLDER, name="zoo")


def judged(name: str, dtype: str = "", patience: float = PATIENCE, work: str = "judge") -> Verdict:
    """Return the verdict on one model, also if the child crashes or hangs."""
    (task,) = plan([name], dtype, patience, work).tasks()
    return verdict_of(run_task(Hasher().keyed(task).as_dict()), patience)


def judged_by_fleet(names: list[str], folder: Path, workers: int) -> Iterator[Verdict]:
    """Judge models on several workers; yield the verdicts of the Parquet file that this writes."""
    from local_workers import local_engine, memory_of_one  # page.py adds its folder to the path

    chosen = plan(names, memory=memory_of_one(workers))
    with local_engine(workers) as engine, displayed(len(names), engine) as observer:
        fleet.run(chosen, folder, engine=engine, observer=observer)
    for row in fleet.read_rows(folder):
        if row["id"] in names and row["verdict"] != LOST:  # the next run judges those
            yield verdict_of(row)


def verdict_of(row: Mapping[str, Any], patience: float = PATIENCE) -> Verdict:
    """Return the verdict of a row; a child that ended early has none, but a cause."""
    details = json.loads(row["details"] or "{}")
    if "judged" in details:
        return Verdict(**details["judged"])
    cause = str(row["cause"])
    if row["verdict"] == "timeout":
        cause = f"no answer in {patience:.0f} s"
    elif cause.startswith("SIG"):
        cause = f"killed by {cause}"
    return Verdict(row["model"], cause, str(row["message"]))
