"""The function that the fleet calls in a child process to judge samples of one entry."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch

from . import entries
from .judge import judge
from .outcome import ATTEMPTED, Kind

Report = Callable[[dict[str, Any]], None]


def judge_samples(task: Any, report: Report) -> dict[str, Any]:
    """Judge samples; report the chosen ones, those that run now, and each verdict.

    The configuration has the entry, and either `most`, the largest number of samples by dtype, or
    `samples`, their indices by dtype. The row of a child that crashes has what was reported.
    """
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    entry, began = task.config["entry"], time.process_time()
    wanted = task.config.get("samples") or {
        dtype: entries.chosen(entries.samples(entry, dtype), most)
        for dtype, most in task.config["most"].items()
    }
    report({"chosen": wanted})
    bad: list[str] = []
    alone = task.config["alone"]
    for verdict in judge(entry, wanted, alone=alone, trying=lambda now: report({"trying": now})):
        kind, detail = verdict.outcome.kind, verdict.outcome.detail
        report({f"{verdict.dtype} {verdict.index}": [kind, detail, verdict.sample]})
        bad += [f"{kind}: {detail}"] if kind in ATTEMPTED and kind is not Kind.PASS else []
    return {
        "verdict": "fail" if bad else "pass",
        "cause": bad[0][:200] if bad else "",
        "cpu": round(time.process_time() - began, 3),
        "chosen": None,  # the verdicts name them
        "trying": None,
    }
