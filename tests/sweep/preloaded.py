"""Import this module to load all that the first sample of a process needs.

A guard of the fleet imports it once and forks for each task.
"""

from __future__ import annotations

import gc
import warnings

import torch

from . import entries, judge  # noqa: F401  imported for the children


def _warm_up() -> None:
    """Load the database, and import what the first export and decomposition import."""
    entries.entries()
    module = torch.nn.Linear(2, 2)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.export.export(module, (torch.ones(1, 2),)).run_decompositions()
    gc.freeze()  # saves a tenth of the time: collections do not scan torch again


torch.set_num_threads(1)  # a thread that exists before the fork would be missing in the child
_warm_up()
