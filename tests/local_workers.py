"""Workers of fleet runs on this machine, which share its memory."""

from __future__ import annotations

import os
from typing import Any

from coreai_torch.fleet.local_engine import LocalEngine


def local_engine(workers: int) -> Any:
    """Return an engine: one task at a time, or a Dask cluster of several processes."""
    if workers == 1:
        return LocalEngine()
    from coreai_torch.fleet.dask_engine import DaskEngine

    return DaskEngine(workers=workers, memory=_total())


def memory_of_one(workers: int) -> float:
    """Return the share of one worker in GB, which a task can use."""
    return _total() / workers


def _total() -> float:
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
