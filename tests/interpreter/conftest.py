import sys
from pathlib import Path

# The cases of the lowerings, and what turns them into programs, are those of tests/ops.
sys.path.insert(0, str(Path(__file__).parents[1] / "ops"))
