import sys
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
torch.set_num_threads(1)  # the workers of pytest-xdist share the cores

import lean_torch  # noqa: E402  found by the line above

lean_torch.make_lean()
