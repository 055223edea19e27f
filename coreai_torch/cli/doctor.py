"""`coreai-torch doctor`: check the environment and an asset for known problems."""

from __future__ import annotations

import dataclasses
import platform
import shutil
import tempfile
import warnings
from collections.abc import Iterator
from importlib import import_module, metadata
from pathlib import Path
from typing import Annotated, Any

import typer

from .. import torch_version
from .console import Json, answer, size, table

HELP = """Check the environment, and an asset for known problems on devices.

\b
  coreai-torch doctor
  coreai-torch doctor net.aimodel

Exits with code 1 if it finds an error; warnings alone exit with code 0.
"""
_PACKAGES = ("coreai-torch", "coreai-core", "torch", "numpy", "transformers", "safetensors")
_SPACE = 2 << 30  # free bytes below which saving a model may fail


def doctor(
    asset: Annotated[Path | None, typer.Argument(help="An .aimodel.", show_default=False)] = None,
    as_json: Json = False,
) -> None:
    """Check the environment and the asset."""
    environment = _environment()
    problems = list(_problems(environment))
    can_import = not any("cannot be imported" in problem for problem in problems)
    if asset is not None and not can_import:
        problems.append(f"{asset} was not checked: that needs what cannot be imported")
    found = _hazards(asset) if asset is not None and can_import else []
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
            f"  try   {hazard.hint}",
            f"  code  {hazard.code}",
        ]
    if asset is not None and can_import and not found:
        lines.append(f"{asset}: no known hazards")
    ok = not problems and all(h.severity != "error" for h in found)
    answer(data, lines, as_json=as_json, ok=ok)


def _hazards(asset: Path) -> list[Any]:
    from ..report import hazards

    return list(hazards(asset))


def _environment() -> dict[str, str]:
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            found[package] = "not installed"
    found["torch versions tested"] = torch_version.TESTED
    found["coreai_torch from"] = str(Path(__file__).parents[1])
    found["free for temporary files"] = size(shutil.disk_usage(tempfile.gettempdir()).free)
    return found


def _problems(environment: dict[str, str]) -> Iterator[str]:
    if shutil.disk_usage(tempfile.gettempdir()).free < _SPACE:
        yield "less than 2 GB free for temporary files: saving and running large models may fail"
    here = Path.cwd() / "coreai_torch"
    if here.is_dir() and here != Path(environment["coreai_torch from"]):
        yield f"{here} shadows the installed package when Python runs in this folder"
    torch = environment["torch"]
    if torch != "not installed" and torch_version.is_too_new(torch):
        yield f"torch {torch} is newer than the tested versions, {torch_version.TESTED}"
    yield from _import_problems(environment)


def _import_problems(environment: dict[str, str]) -> Iterator[str]:
    """Import torch, the bindings and the converter, and say which of them fails and why."""
    for module in ("torch", "coreai.runtime", "coreai_torch.converter"):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                import_module(module)
        except Exception as error:  # whatever a broken installation raises
            reason = str(error).strip().splitlines() or [""]
            yield f"{module} cannot be imported: {type(error).__name__}: {reason[0]}"
            return
    environment.update(_converter_facts())


def _converter_facts() -> dict[str, str]:
    """Return what only a working installation can tell."""
    from ..errors import KernelError
    from ..kernels.compiler import compiler
    from ..lowering.registry import BUILTIN

    missing = ", ".join(sorted(BUILTIN.missing)) or "none"
    try:
        found = compiler()[0]
    except KernelError:
        found = "none"
    return {"ops that this torch lacks": missing, "C++ compiler for Metal kernels": found}
