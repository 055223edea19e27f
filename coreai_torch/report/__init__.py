"""Reports on a program: its contents, its hazards, and the differences between two."""

from ..asset.contents import FunctionSummary, PortSummary
from ..asset.summary import Summary, summarize
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
