import gc
import os
import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # the workers of pytest-xdist share the cores
# Tests compare programs before and after `optimize()`, so saving must not call it.
os.environ["COREAI_TORCH_OPTIMIZE"] = "0"
# A fork of a process that imported everything takes 0.1 s; tests/sandbox/test_step.py forks.
os.environ["COREAI_TORCH_FORK"] = "0"

import lazy_import  # noqa: E402
import lean_torch  # noqa: E402  found by the line above
import rewrite_everything  # noqa: E402
import version_faults  # noqa: E402

lean_torch.make_lean()
if target := os.environ.get("REWRITES"):
    rewrite_everything.make_default(target)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Pause the garbage collector: it visits all imported modules again and again, for seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Keep each xdist group on one worker.

    pytest-xdist 3.8 appends the group to `_nodeid`, which pytest 9.2 does not read.
    """
    version_faults.skip_faults(items)
    for item in items:
        name = vars(item).get("_nodeid")
        if name:
            item._id = type(item._id).parse(name)


def pytest_runtest_setup(item):
    module = getattr(item, "module", None)
    if module is not None:
        lazy_import.resolve(vars(module))
