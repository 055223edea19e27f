import sys
from pathlib import Path

import pytest
import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # the workers of pytest-xdist share the cores

import lean_torch  # noqa: E402  found by the line above

lean_torch.make_lean()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Groups stay on one worker: pytest-xdist 3.8 names them where pytest 9.2 does not look."""
    for item in items:
        name = vars(item).get("_nodeid")
        if name:
            item._id = type(item._id).parse(name)
