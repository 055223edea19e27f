"""A pytest plugin: `--result FILE` writes the counts, and a row for each compressed model.

The rows are the measurements of `tests/compression/conversion.py`.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest

COUNTS: Counter[str] = Counter(passed=0, failed=0, skipped=0)
ROWS: list[dict[str, object]] = []


def pytest_addoption(parser):
    parser.addoption("--result", type=Path, help="the file that the result is written to")


@pytest.fixture(autouse=True)
def _measurements(request):
    conversion = sys.modules.get("conversion")
    if conversion is not None:
        conversion.MEASURED.clear()
    yield
    if conversion is not None:
        request.node.user_properties.extend(conversion.MEASURED.items())


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed":
        COUNTS[report.outcome] += 1
    if report.when == "teardown" and report.user_properties:
        ROWS.append({"path": path_of(report.nodeid), **dict(report.user_properties)})


def path_of(test: str) -> str:
    """Return the name of a path of the client from the name of its test."""
    name, _, parameters = test.rpartition("::")[2].removeprefix("test_").partition("[")
    words = name.replace("_", " ")
    return f"{words}: {parameters.removesuffix(']').replace('-', ', ')}" if parameters else words


def pytest_sessionfinish(session):
    path = session.config.getoption("--result")
    if path is not None:
        path.write_text(json.dumps({**COUNTS, "rows": ROWS}))
