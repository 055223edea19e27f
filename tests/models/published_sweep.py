"""Judge models at their published sizes in parallel: `python tests/models/published_sweep.py FILE`.

Each model runs in a fork of a process that has imported the libraries, with limits of processor
time and memory, and adds one line of JSON to FILE: its verdict, the commit and the versions. A
model with a line at this commit is not judged again, so an interrupted sweep continues. One model
of each family comes first, then the second of each, so that a short sweep covers all families.

It starts forks itself instead of a fleet run, because it runs in parallel on machines without Dask
and pyarrow, and stops at a given second with all verdicts in one file.

    --jobs N        forks at a time (1)
    --shard I/N     only every N-th model, from the I-th (0-based)
    --seconds S     start no model after S seconds, and stop the rest 20 seconds later
    --libraries A,B only models of these libraries
    --commit HASH   the commit, if the folder is not a repository
    --collect       store the models that pass in all FILEs, and write the page
    NAME ...        only models whose names contain one of these
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import json
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]

WAIT = 20.0  # seconds for running models after the last one started
PATIENCE = 8  # times the limit of processor seconds that a model may take on a busy machine


def _versions() -> dict[str, str]:
    import provenance

    installed = [name for name in ("transformers", "diffusers", "timm") if find_spec(name)]
    return provenance.current(*installed)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--libraries", default="")
    parser.add_argument("--commit", default="")
    parser.add_argument("--collect", action="store_true")
    return parser.parse_intermixed_args()


def judged_names(file: Path, commit: str) -> set[str]:
    """Return the models that have a verdict at a commit."""
    from published_sizes import read_lines

    return {line["name"] for line in read_lines(file) if line["run"]["commit"] == commit}


def _chosen(options: argparse.Namespace, done: set[str]) -> list[str]:
    import zoo

    libraries = options.libraries.split(",") if options.libraries else []
    index, count = map(int, options.shard.split("/"))
    names = [
        name
        for name, row in zoo.PUBLISHED_SIZES.items()
        if (not libraries or row.library in libraries)
        and (not options.names or any(part in name for part in options.names))
    ]
    return [name for name in in_turn(names)[index::count] if name not in done]


def in_turn(names: list[str]) -> list[str]:
    """Return the first model of each family, then the second of each, and so on."""
    import zoo

    families: dict[tuple[str, str], list[str]] = {}
    for name in names:
        row = zoo.PUBLISHED_SIZES[name]
        families.setdefault((row.library, row.family), []).append(name)
    turns = itertools.zip_longest(*families.values())
    return [name for turn in turns for name in turn if name is not None]


def _work(name: str, file: Path, run: dict[str, str]) -> None:
    """Judge one model in this process, and add its line."""
    from zoo.judge import judge_within_limits

    _add(file, dataclasses.asdict(judge_within_limits(name)), run)


def _add(file: Path, verdict: dict[str, Any], run: dict[str, str]) -> None:
    verdict["error"] = verdict["error"] if verdict["error"] == verdict["error"] else None
    line = json.dumps({"name": verdict["name"], "run": run, "verdict": verdict})
    with file.open("a") as lines:
        lines.write(line + "\n")


def _cause(code: int) -> str:
    """Return why a process failed, or an empty string."""
    from zoo.judge import SECONDS

    if code == -signal.SIGXCPU:
        return f"over {SECONDS} processor seconds"
    if code < 0:
        return signal.Signals(-code).name
    return f"exit code {code}" if code else ""


class _Forks:
    """Running models by process, each with its start and its temporary folder.

    This process removes the folder: a fork that is killed at a limit leaves its asset there.
    """

    def __init__(self, file: Path, run: dict[str, str], limit: float) -> None:
        self.file, self.run, self.limit = file, run, limit
        self.running: dict[int, tuple[str, float, Path]] = {}

    def start(self, name: str) -> None:
        folder = Path(tempfile.mkdtemp())
        process = os.fork()
        if not process:
            sink = os.open(os.devnull, os.O_WRONLY)
            os.dup2(sink, 2)
            os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
            _work(name, self.file, self.run)
            os._exit(0)
        self.running[process] = (name, time.monotonic(), folder)

    def collect(self) -> Iterator[str]:
        """Yield the models whose processes have ended."""
        for process, (name, start, folder) in list(self.running.items()):
            ended, status = os.waitpid(process, os.WNOHANG)
            if not ended and time.monotonic() - start > self.limit:
                os.kill(process, signal.SIGKILL)
                os.waitpid(process, 0)
                ended, cause = process, f"no answer in {self.limit:.0f} s"
            else:
                cause = _cause(os.waitstatus_to_exitcode(status))
            if ended:
                del self.running[process]
                shutil.rmtree(folder, ignore_errors=True)
                if cause:
                    self._add_failure(name, cause)
                yield name

    def _add_failure(self, name: str, cause: str) -> None:
        from zoo.judge import Verdict

        _add(self.file, dataclasses.asdict(Verdict(name, cause)), self.run)

    def stop(self) -> None:
        """End the running models without a line: they are judged in the next sweep."""
        for process, (_, _, folder) in self.running.items():
            os.kill(process, signal.SIGKILL)
            os.waitpid(process, 0)
            shutil.rmtree(folder, ignore_errors=True)
        self.running.clear()


def _warm_up() -> None:
    """Import the libraries and export once, so that a fork does not.

    No program is built: a context of the compiler has threads, which a fork loses.
    """
    import torch
    import transformers.modeling_utils  # noqa: F401

    import coreai_torch

    program = torch.export.export(torch.nn.Linear(2, 2).eval(), (torch.randn(3, 2),))
    program.run_decompositions(coreai_torch.get_decomp_table())


def sweep(options: argparse.Namespace) -> None:
    from zoo.judge import SECONDS

    _warm_up()
    run = _versions()
    run["commit"] = options.commit or run["commit"]
    waiting = _chosen(options, judged_names(options.file, run["commit"]))
    forks = _Forks(options.file, run, SECONDS * PATIENCE)
    begin = time.monotonic()
    while waiting or forks.running:
        late = time.monotonic() - begin - options.seconds
        if late > 0:
            waiting = []
        if late > WAIT:
            forks.stop()
        while waiting and len(forks.running) < options.jobs:
            forks.start(waiting.pop(0))
        for name in forks.collect():
            sys.stdout.write(f"{time.monotonic() - begin:.0f} s, {len(waiting)} left: {name}\n")
            sys.stdout.flush()
        time.sleep(0.1)


def main() -> None:
    options = _arguments()
    if options.collect:
        import published_sizes

        published_sizes.collect([options.file, *map(Path, options.names)])
    else:
        sweep(options)


if __name__ == "__main__":
    main()
