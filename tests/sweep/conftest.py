import sys
from pathlib import Path

# The sweep is also a command, `python -m tests.sweep`, so its modules import `tests.sweep`.
sys.path.insert(0, str(Path(__file__).parents[2]))
