import sys
from pathlib import Path

# The sweep is also a command, `python -m tests.sweep`: its modules know each other by that name.
sys.path.insert(0, str(Path(__file__).parents[2]))
