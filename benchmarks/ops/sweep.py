"""Run the calls of `cases.py` and `real_sizes.py`, each within 90 processor seconds and 8 GB.

    python -m benchmarks.ops.sweep FILE [--jobs N] [--seconds S] [--commit HASH] [PART ...]

Each call runs in a fork and adds one line of JSON to FILE: its figures or its problem, the commit
and the versions. A call with a line at this commit is skipped, so an interrupted sweep continues.
`--report` prints the calls that fail, are wrong or take more than 300 times the eager time.
`--store` merges FILE into `real_sizes.json`, and writes its table to `docs/benchmarks.md`.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import signal
import time
from pathlib import Path
from typing import Any

from benchmarks.ops import child, page, vision_ops
from benchmarks.ops.cases import CASES, define_nms
from benchmarks.ops.real_sizes import EXPLAINED, REAL_SIZES
from tests.provenance import current

SECONDS, GIGABYTES, SLOW = 90, 8, 300
# Torch's own float32 is inaccurate: `prod` of 1M differs from float64 by 4e-5.
WRONG = 5e-5
ALL = REAL_SIZES | CASES
STORED = Path(__file__).parent / "real_sizes.json"
_GRACE = 10  # times the processor seconds that a call may take on a busy machine


def _figures(name: str) -> dict[str, Any]:
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))
    library = _library(name)
    try:
        return child.measure(name, ALL[name], False, name.endswith("dynamic"))
    except Exception as problem:
        return {"problem": f"{type(problem).__name__}: {problem}"[:400]}
    finally:
        del library


def _library(name: str) -> Any:
    """Define the ops of torchvision that a call needs; they exist as long as the result."""
    if name.startswith("nms"):
        return define_nms()
    return vision_ops.define() if name.startswith(("roi_", "deform_")) else None


def _write(file: Path, name: str, run: dict[str, str], figures: dict[str, Any]) -> None:
    with file.open("a") as lines:
        lines.write(json.dumps({"name": name, "run": run, "figures": figures}) + "\n")


def _fork(file: Path, name: str, run: dict[str, str]) -> int:
    process = os.fork()
    if not process:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
        _write(file, name, run, _figures(name))
        os._exit(0)
    return process


def read(file: Path) -> list[dict[str, Any]]:
    """Return the lines of a sweep."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def sweep(options: argparse.Namespace) -> None:
    """Run the calls that have no line yet, several at a time."""
    run = current()
    run["commit"] = options.commit or run["commit"]
    done = {line["name"] for line in read(options.file) if line["run"]["commit"] == run["commit"]}
    parts = options.parts or [""]
    waiting = [n for n in ALL if n not in done and any(part in n for part in parts)]
    running: dict[int, tuple[str, float]] = {}
    child.warm_up()
    begin = time.monotonic()
    while waiting or running:
        if time.monotonic() - begin > options.seconds:
            waiting = []
        while waiting and len(running) < options.jobs:
            name = waiting.pop(0)
            running[_fork(options.file, name, run)] = (name, time.monotonic())
        for process, (name, start) in list(running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and time.monotonic() - start > SECONDS * _GRACE:
                os.kill(process, signal.SIGKILL)
            if ended:
                del running[process]
                if status:
                    problem = {"problem": _cause(os.waitstatus_to_exitcode(status))}
                    _write(options.file, name, run, problem)
        time.sleep(0.05)


def _cause(code: int) -> str:
    if code == -signal.SIGXCPU:
        return f"over {SECONDS} processor seconds"
    return signal.Signals(-code).name if code < 0 else f"exit code {code}"


def complaint(figures: dict[str, Any]) -> str:
    """Return what is wrong with the figures of a call, or nothing."""
    if "problem" in figures:
        return str(figures["problem"])
    if not figures["error"] <= WRONG:
        return f"error {figures['error']:.1e}"
    ratio = figures["run"] / max(figures["eager"], 1e-6)
    return f"{ratio:.0f} times eager" if ratio > SLOW else ""


def store(file: Path) -> None:
    """Merge the lines of a sweep into the stored results; the last line of a call is kept."""
    known = {line["name"]: line for line in json.loads(STORED.read_text())}
    known |= {line["name"]: line for line in read(file)}
    rows = [known[name] for name in sorted(known) if name in ALL]
    STORED.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")
    page.write_real_sizes({row["name"]: row["figures"] for row in rows}, complaint, EXPLAINED)


def report(file: Path) -> None:
    """Print the calls with a complaint, by their last line."""
    last = {line["name"]: line["figures"] for line in read(file)}
    for name, figures in last.items():
        if reason := complaint(figures):
            print(f"{name}: {reason}; {EXPLAINED.get(name, 'not explained')}")
    print(f"{len(last)} of {len(ALL)} calls have run")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("parts", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--commit", default="")
    parser.add_argument("--report", action="store_true")
    parser.add_argument("--store", action="store_true")
    options = parser.parse_intermixed_args()
    if options.store:
        store(options.file)
    elif not options.report:
        sweep(options)
    report(options.file)


if __name__ == "__main__":
    main()
