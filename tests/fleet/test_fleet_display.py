"""The line that shows the state of a run."""

from __future__ import annotations

import time
from types import SimpleNamespace

from coreai_torch.fleet.display import describe
from coreai_torch.fleet.running import RunSummary


def test_line_has_counts_rate_and_time_left():
    engine = SimpleNamespace(running=3)
    summary = RunSummary(100, skipped=10, engine=engine, began=time.monotonic() - 60)
    assert describe(summary) == "10 of 100 done, 10 skipped, 0 failed, 3 running"
    summary.verdicts.update({"pass": 25, "crash": 5})
    engine.running = 4  # changed since the last result
    line = describe(summary)
    assert line.startswith("40 of 100 done, 10 skipped, 5 failed, 4 running, 30.0/min, ")
    assert line.endswith(("2 min 00 s left", "1 min 59 s left"))
