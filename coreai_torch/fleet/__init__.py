"""Convert and verify many models as one job, on one machine or on a Dask cluster.

A plan lists models, a grid and steps; each combination is a task with a stable id. Every task runs
in a fresh child process with limits on time and memory, and becomes one row of a Parquet file.
"""

from .comparing import Comparison, compare
from .plan import Plan, load_plan, parse_plan
from .report_page import write_report
from .results import read_rows
from .running import RunSummary, run
from .task import Task

__all__ = [
    "Comparison",
    "Plan",
    "RunSummary",
    "Task",
    "compare",
    "load_plan",
    "parse_plan",
    "read_rows",
    "run",
    "write_report",
]
