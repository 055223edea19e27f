"""Tests of ops are collected and run without the libraries that other tests import."""

import os
import subprocess
import sys
from pathlib import Path

TESTS = Path(__file__).parents[1]


def test_all_tests_are_collected_and_ops_pass_without_optional_libraries():
    search = [str(TESTS.parent), str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    options = ["-p", "blocked_imports", "-p", "no:cacheprovider", "-n", "0", "-rs"]
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "-k", "hypot or (of_their_group)", str(TESTS)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, search))},
    )
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-2000:]
    assert "transformers is not installed" in result.stdout  # of test_grouped.py
    assert " passed" in result.stdout
