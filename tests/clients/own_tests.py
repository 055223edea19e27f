"""Run the tests that a client's package contains: `python own_tests.py RESULT MODULE...`.

Not by pytest: the folder `coreai` of executorch would hide the package `coreai`. The counts are
written to the file RESULT as JSON.
"""

from __future__ import annotations

import json
import sys
import unittest
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from unittest import mock


@contextmanager
def linear_is_decomposed() -> Iterator[None]:
    """Decompose linear layers into `addmm`, as the published converter does."""
    import torch

    import coreai_torch

    linear, kept = torch.ops.aten.linear.default, coreai_torch.get_decomp_table

    def table() -> dict[object, object]:
        return {**kept(), linear: torch.export.default_decompositions()[linear]}

    with mock.patch.object(coreai_torch, "get_decomp_table", table):
        yield


@contextmanager
def solve_is_unsupported() -> Iterator[None]:
    """Hide the lowering of `linalg_solve`, which the published converter lacks."""
    from coreai_torch.compat.resolvers import Resolver

    named = Resolver._named

    def without(self: Resolver) -> dict[str, object]:
        return {name: e for name, e in named(self).items() if name != "linalg_solve.default"}

    with mock.patch.object(Resolver, "_named", without):
        yield


# Tests of executorch 1.5.1 that depend on what the published converter decomposes or lacks. The
# first three refuse the second `addmm` to split a model into two delegates.
CONDITIONS: dict[str, Callable[[], AbstractContextManager[None]]] = {
    "test_graph_break_second_linear_not_delegated": linear_is_decomposed,
    "test_intermediate_boundary_enumerates_to_the_derived_values": linear_is_decomposed,
    "test_specialization_keys_align_across_delegates": linear_is_decomposed,
    "test_call_function_follows_resolver": solve_is_unsupported,
    "test_unsupported_aten_op": solve_is_unsupported,
}


def tests(suite: unittest.TestSuite) -> Iterator[unittest.TestCase]:
    """Yield the tests of a suite."""
    for part in suite:
        if isinstance(part, unittest.TestSuite):
            yield from tests(part)
        else:
            yield part


def main(path: str, *modules: str) -> int:
    """Run all tests, write the counts and return the exit code."""
    result = unittest.TextTestResult(
        unittest.runner._WritelnDecorator(sys.stderr), descriptions=False, verbosity=1
    )
    changed = 0
    for test in tests(unittest.defaultTestLoader.loadTestsFromNames(modules)):
        condition = CONDITIONS.get(test.id().rpartition(".")[2])
        changed += condition is not None
        with condition() if condition else nullcontext():
            test.run(result)
    result.printErrors()
    failed = len(result.failures) + len(result.errors)
    passed = result.testsRun - failed - len(result.skipped)
    counts = {"passed": passed, "failed": failed, "skipped": len(result.skipped)}
    Path(path).write_text(json.dumps({**counts, "conditions": changed}))
    return 0 if result.wasSuccessful() else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
