# ruff: noqa: T201  a command prints
"""`python -m tests.forms [ops]`: print what changed in the forms of op cases; `--record` stores it.

Ops are given by parts of names, as `flip`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests import forked

sys.path.insert(0, str(Path(__file__).parents[1]))


def main() -> int:
    options = _options()
    os.environ["COREAI_TORCH_OPTIMIZE"] = "0"
    forked.preload("tests.forms.converting")
    from . import converting, stored

    chosen = {
        name: [m for m in members if _selected(converting.name(m), options.ops)]
        for name, members in converting.static_batches().items()
    }
    jobs = [members for members in chosen.values() if members]
    families = {converting.name(m): stored.family(m[0].fn.__module__) for ms in jobs for m in ms}
    before, found, failed = stored.read(), {}, 0
    started = time.monotonic()
    _JOBS.extend(jobs)
    for job, result, failure in forked.run(_convert, range(len(jobs)), options.workers):
        problem = failure or result.get("problem")
        if problem:
            failed += 1
            print(f"{', '.join(map(converting.name, jobs[job]))}: {problem}")
        else:
            found |= result
            for name in sorted(result, key=_order):
                if before.get(name) != result[name]:
                    print(f"{name}: {before.get(name, 'not stored')} -> {result[name]}", flush=True)
    print(f"{len(found)} cases in {time.monotonic() - started:.0f} s, {failed} batches failed")
    if options.record:
        _record(found, families, everything=not options.ops and not failed)
    return 1 if failed else 0


_JOBS: list[Any] = []  # children inherit it


def _convert(job: int) -> dict[str, str]:
    from .converting import converted

    try:
        return converted(_JOBS[job])
    except Exception as error:
        return {"problem": f"{type(error).__name__}: {error}".splitlines()[0]}


def _record(found: dict[str, str], families: dict[str, str], *, everything: bool) -> None:
    """Store the forms; those of ops that were not converted stay."""
    from ..sweep import page
    from . import batched, reasons, stored

    ops = {_op(name) for name in found}
    for family in {*families.values()}:
        file = stored.file(family)
        kept = {} if everything or not file.exists() else dict(stored.read_file(file))
        kept = {name: form for name, form in kept.items() if _op(name) not in ops}
        new = {name: form for name, form in found.items() if families[name] == family}
        stored.write(file, {**kept, **new})
    pairs = {(c, _op(n)) for n, form in stored.read().items() for c in batched.findings(form)}
    reasons.keep(pairs)
    page.write()


def _op(name: str) -> str:
    return name.rpartition("-")[0]


def _order(name: str) -> tuple[str, int]:
    op, _, number = name.rpartition("-")
    return op, int(number)


def _selected(name: str, parts: list[str]) -> bool:
    return not parts or any(part in _op(name) for part in parts)


def _options() -> Any:
    parser = argparse.ArgumentParser(prog="python -m tests.forms", description=__doc__)
    parser.add_argument("ops", nargs="*", help="parts of names of ops; default: all")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--workers", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    raise SystemExit(main())
