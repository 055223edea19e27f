import sys
from pathlib import Path

import coreai_torch.ops  # noqa: F401  # registers the lowerings, whose cases are the tests

# The cases of the lowerings, and what turns them into programs, are those of tests/ops.
sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
