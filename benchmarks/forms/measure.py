"""Convert programs with this converter, each in a fork, and pair them with the published one's."""

from __future__ import annotations

import importlib
import tempfile
import time
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import torch

from tests import forked

from .peer import Published, cached, key
from .program import Call, Program
from .programs import PROGRAMS

DTYPES = {"f32": torch.float32, "f16": torch.float16}
Job = tuple[str, str, str]  # name, dtype, folder
PATIENCE = 900


def _ours(job: Job) -> dict[str, Any]:
    """Return the figures of one program, and what identifies it in the cache."""
    name, dtype, folder = job
    found: dict[str, Any] = {}
    try:
        module, args = PROGRAMS[name].made(DTYPES[dtype])
        found["key"] = key(f"{name} {dtype}", module, args)
        if cached(found["key"]) is None and not isinstance(module, Call):
            _export(module, args, Path(folder) / "m.pt2")
        found |= _converted(module, args)
    except Exception as error:
        found["problem"] = f"{type(error).__name__}: {error}".splitlines()[0][:300]
    return found


def _export(module: torch.nn.Module, args: tuple[torch.Tensor, ...], file: Path) -> None:
    with torch.no_grad():
        torch.export.save(torch.export.export(module, args), file)


def _converted(module: torch.nn.Module, args: tuple[torch.Tensor, ...]) -> dict[str, Any]:
    import coreai_torch

    from .figures import figures

    start = time.process_time()
    program = coreai_torch.convert(module, args, verify=False)
    return figures(program) | {"seconds": time.process_time() - start}


def _preload(programs: Collection[Program]) -> None:
    libraries = {program.library for program in programs} - {""}
    if "torchvision" in libraries or "timm" in libraries:
        from zoo import torchvision_library

        torchvision_library.load()
    names = {"transformers": "transformers.modeling_utils", "torchvision": "torchvision.models"}
    for library in libraries:
        importlib.import_module(names.get(library, library))


def _warm_up() -> None:
    """Export and import what every conversion needs; no program is built before the forks."""
    import coreai_torch.api
    import coreai_torch.ops
    import coreai_torch.targets.lint

    lean = importlib.import_module("lean_torch")
    lean.make_lean()
    torch.set_num_threads(1)
    module = torch.nn.Linear(2, 2)
    with torch.no_grad():
        program = torch.export.export(module, (torch.ones(1, 2),))
        program.run_decompositions(coreai_torch.get_decomp_table())


def measured(wanted: Collection[tuple[str, str]], *, workers: int = 1) -> Iterator[dict[str, Any]]:
    """Yield a row for each program and dtype: its name, dtype, our figures and the peer's."""
    _preload([PROGRAMS[name] for name, _ in wanted])
    _warm_up()
    published = Published()
    with tempfile.TemporaryDirectory() as top:
        jobs = []
        for number, (name, dtype) in enumerate(wanted):
            folder = Path(top) / str(number)
            folder.mkdir()
            jobs.append((name, dtype, str(folder)))
        for job, found, failure in forked.run(_ours, jobs, workers, patience=PATIENCE):
            name, dtype, folder = job
            ours = found or {"problem": failure}
            yield {
                "name": name,
                "family": PROGRAMS[name].family,
                "dtype": dtype,
                "ours": ours,
                "published": _theirs(published, ours.get("key", ""), _source(name, dtype, folder)),
            }


def _source(name: str, dtype: str, folder: str) -> str:
    """Return what the published converter gets: a stored program, or the name of a call."""
    stored = Path(folder) / "m.pt2"
    return str(stored) if stored.exists() else f"{name} {str(DTYPES[dtype]).partition('.')[2]}"


def _theirs(published: Published, name: str, source: str) -> dict[str, Any]:
    found = cached(name) if name else {"problem": "not exported"}
    if found is None:
        found = published.figures(name, source)
        Path(source).unlink(missing_ok=True)
    return found
