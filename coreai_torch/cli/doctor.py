"""`coreai-torch doctor`: is this machine fit, and is this asset?"""

from __future__ import annotations

import dataclasses
import platform
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from .console import Json, answer, size, table

HELP = """Look at the environment, and at an asset for what is known to go wrong on devices.

\b
  coreai-torch doctor
  coreai-torch doctor net.aimodel

Leaves with 1 if anything is found that will fail; warnings alone leave with 0.
"""
_PACKAGES = ("coreai-torch", "coreai-core", "torch", "numpy", "transformers", "safetensors")
_SPACE = 2 << 30  # free bytes below which saving a model may fail


def doctor(
    asset: Annotated[Path | None, typer.Argument(help="An .aimodel.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Examine."""
    from ..report import hazards

    environment = _environment()
    problems = list(_problems(environment))
    found = hazards(asset) if asset is not None else []
    data: dict[str, Any] = {
        "environment": environment,
        "problems": problems,
        "hazards": [dataclasses.asdict(h) for h in found],
    }
    lines = [*table(list(environment.items()), ""), *(f"problem: {p}" for p in problems)]
    for hazard in found:
        times = "once" if hazard.count == 1 else f"{hazard.count} times"
        lines += [
            f"{hazard.severity}: {hazard.problem}, {times}",
            f"  at    {hazard.place}",
            f"  try   {hazard.way_out}",
            f"  code  {hazard.code}",
        ]
    if asset is not None and not found:
        lines.append(f"{asset}: no known hazards")
    ok = not problems and all(h.severity != "error" for h in found)
    answer(data, lines, as_json=as_json, ok=ok)


def _environment() -> dict[str, str]:
    from ..errors import KernelError
    from ..kernels.compiler import compiler

    told = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            told[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            told[package] = "not installed"
    told["coreai_torch from"] = str(Path(__file__).parents[1])
    told["free for temporary files"] = size(shutil.disk_usage(tempfile.gettempdir()).free)
    try:
        told["C++ compiler for Metal kernels"] = compiler()[0]
    except KernelError:
        told["C++ compiler for Metal kernels"] = "none"
    return told


def _problems(environment: dict[str, str]) -> Iterator[str]:
    if shutil.disk_usage(tempfile.gettempdir()).free < _SPACE:
        yield "little space for temporary files: saving and running large models will fail"
    here = Path.cwd() / "coreai_torch"
    if here.is_dir() and here != Path(environment["coreai_torch from"]):
        yield f"{here} would be imported from here in place of the installed package"
