# ruff: noqa: T201  a command prints
"""`make op OP=hypot`: run the cases of one op and its entries of PyTorch's op database.

Each case runs with static and dynamic sizes, before and after `optimize`. Of each database entry a
few samples of each dtype run, in a child process; `python -m tests.sweep hypot` runs them all.
The child is forked before the cases run, because the runtime starts threads.
"""

from __future__ import annotations

import difflib
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests"), str(ROOT / "tests" / "ops")]

import torch  # noqa: E402
from case_runner import ALL, check, sized  # noqa: E402  found by the lines above

from tests.sweep import entries  # noqa: E402
from tests.sweep.outcome import ATTEMPTED, Kind  # noqa: E402
from tests.sweep.plan import judged  # noqa: E402

SAMPLES = 4  # of each dtype


def base_name(name: str) -> str:
    """Return `hypot` for `aten::hypot.out` and `aten.hypot_`, and `softmax` for `_softmax`."""
    name = name.replace("::", ".").removeprefix("aten.")
    return name.partition(".")[0].strip("_")


def cases_of(op: str) -> list[Any]:
    """Return the rows of all lowerings of the op, with static and with dynamic sizes."""
    return [row for param in ALL if _is_named(param, op) for row in sized(param)]


def _is_named(param: Any, op: str) -> bool:
    target = param.values[0].target
    is_overload = isinstance(target, torch._ops.OpOverload)
    name = target.name() if is_overload else target.__name__
    return op == name or base_name(op) == base_name(name)


def entries_of(op: str) -> list[str]:
    """Return the entries of the op database with this name or this ATen name, and variants."""
    wanted = base_name(op)
    return [
        name
        for name, entry in entries.entries().items()
        if op in (name, entry.name) or wanted in (name, entry.name, entry.aten_name)
    ]


def similar(op: str) -> list[str]:
    """Return names of ops and entries that look like this one."""
    ops = {param.id.partition("-")[0].partition(".")[0] for param in ALL}
    return difflib.get_close_matches(op, sorted(ops | set(entries.entries())), n=5, cutoff=0.6)


def run_case(row: Any) -> str:
    """Return why the case failed or was skipped; an empty text if it passed."""
    for mark in row.marks:
        if mark.name == "skipif" and mark.args[0]:
            return f"skipped: {mark.kwargs['reason']}"
    entry, case, sizes = row.values
    try:
        check(entry, case, dynamic=sizes == "dynamic")
    except Exception:
        return f"FAILED\n{traceback.format_exc()}"
    return ""


def run_entry(name: str) -> tuple[int, list[str]]:
    """Return the number of samples that passed, and a line for each that failed."""
    result = judged(name, dict.fromkeys(entries.dtypes(name), SAMPLES), fork=True)
    failed = [
        f"{v.dtype} #{v.index} {v.outcome.kind}: {v.outcome.detail}\n    {v.sample}"
        for v in result.verdicts
        if v.outcome.kind in ATTEMPTED and v.outcome.kind is not Kind.PASS
    ]
    return sum(v.outcome.kind is Kind.PASS for v in result.verdicts), failed


def main(arguments: list[str]) -> int:
    if len(arguments) != 1 or not arguments[0]:
        print("name one op: make op OP=hypot")
        return 2
    op, started = arguments[0], time.monotonic()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    rows, found = cases_of(op), entries_of(op)
    if not rows and not found:
        print(f"No lowering and no entry of the op database is called {op!r}.")
        if names := similar(base_name(op)):
            print(f"  try   {', '.join(names)}")
        return 2
    failures = _run_entries(found)
    failures += [f"{row.id}: {why}" for row in rows if (why := run_case(row))]
    print(f"{len(rows)} cases of {op} ran (static and dynamic, before and after optimize)")
    for failure in failures:
        print(failure)
    wrong = sum("skipped:" not in failure for failure in failures)
    print(f"{wrong or 'no'} failures, {time.monotonic() - started:.0f} s")
    return 1 if wrong else 0


def _run_entries(found: list[str]) -> list[str]:
    failures = []
    for name in found:
        passed, failed = run_entry(name)
        print(f"{passed} samples of the database entry {name} pass, {len(failed)} fail")
        failures += [f"{name} {line}" for line in failed]
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
