"""What there is to tell of a finished program: its contents, its hazards, how two differ."""

from ..asset.summary import FunctionSummary, PortSummary, Summary, summarize
from .differences import Difference, differences
from .hazards import Hazard, hazards
from .html_page import html_page, write_page

__all__ = [
    "Difference",
    "FunctionSummary",
    "Hazard",
    "PortSummary",
    "Summary",
    "differences",
    "hazards",
    "html_page",
    "summarize",
    "write_page",
]
