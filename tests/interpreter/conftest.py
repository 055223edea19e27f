import sys
from pathlib import Path

import coreai_torch.ops  # noqa: F401  # registers the lowerings, whose cases are the tests

# The cases of the lowerings, what turns them into programs, and the decoder live there.
for room in ("ops", "models"):
    sys.path.insert(0, str(Path(__file__).parents[1] / room))
