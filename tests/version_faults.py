"""Tests that cannot pass with some versions of torch, because torch itself is at fault there.

A row skips the tests whose id matches its pattern, with the reason, in these versions only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import pytest
import torch

RELEASE = tuple(int(n) for n in re.match(r"(\d+)\.(\d+)", torch.__version__).groups())


@dataclass(frozen=True)
class Row:
    """Tests, the last version of torch that has the fault, and the fault."""

    pattern: str  # a regular expression for the test's id
    until: tuple[int, int]
    reason: str

    @property
    def versions(self) -> str:
        return f"{'.'.join(map(str, self.until))} and before"

    def applies(self, name: str) -> bool:
        return self.until >= RELEASE and re.search(self.pattern, name) is not None


ROWS = (
    Row(
        r"test_cases.py::test_case\[_scaled_mm-1-",
        (2, 9),
        "_scaled_mm takes one scale for each matrix only (internal assert in Blas.cpp)",
    ),
    Row(
        r"test_guards.py::test_unrestricted_dynamic_sizes_give_no_warning",
        (2, 12),
        "a convolution followed by a pool with dynamic height and width exports with a guard on "
        "the size (ConstraintViolationError with a named Dim)",
    ),
    Row(
        r"test_cases.py::test_case\[bucketize\.Scalar-",
        (2, 10),
        "the fake kernel of bucketize with a number recurses without end",
    ),
    Row(
        r"test_cases.py::test_case\[_linalg_solve_ex-0-",
        (2, 10),
        "the second result of the internal op is the LU factor of the transposed matrix",
    ),
    Row(
        r"test_dynamic.py::test_(halves|matrix_products|slice_assignment|slices)_(of|with)_dynamic_sizes|"
        r"test_cases.py::test_case\[[\w.:]+-\d+-dynamic",
        (2, 9),
        "run_decompositions raises NameError for a program with dynamic sizes whose forward takes "
        "*args",
    ),
)


def skip_faults(items) -> None:
    """Mark the tests that match a row of the installed version."""
    for item in items:
        for row in ROWS:
            if row.applies(item.nodeid):
                item.add_marker(pytest.mark.skip(reason=f"torch {row.versions}: {row.reason}"))
