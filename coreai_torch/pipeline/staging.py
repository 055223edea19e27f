"""Capture the programs of a conversion and stage them, in half precision if asked."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch

from ..capture.prepare import Captured
from ..converter import TorchConverter
from ..errors import ConversionError
from ..passes.externalize.mark import marked
from ..passes.externalize.spec import as_specs, matches
from ..precision import PrecisionReport
from ..progress import Stages
from .half import Half
from .request import Request
from .sizes import Variant


@dataclass(frozen=True)
class Staged:
    """An entry point that was captured and staged."""

    variant: Variant
    captured: Captured
    report: PrecisionReport | None = None


def stage_source(
    staging: TorchConverter, variant: Variant, externalize: Sequence[Any] | None, stage: Stages
) -> Staged:
    """Capture the source and stage its program."""
    request = variant.request
    if not isinstance(request.source, torch.nn.Module):
        _check_externalize(externalize)
        captured = request.capture(staging, stage)
        _add(staging, variant, captured, externalize)
        return Staged(variant, captured)
    captures: list[Captured] = []

    def export(module: torch.nn.Module) -> torch.export.ExportedProgram:
        captures.append(request.capture(staging, stage))
        return captures[-1].program

    staging.add_pytorch_module(request.source, export, externalize, *_names(variant))
    return Staged(variant, captures[-1])


def stage_half(
    staging: TorchConverter,
    variants: Sequence[Variant],
    externalize: Sequence[Any] | None,
    half: Half,
    stage: Stages,
) -> list[Staged]:
    """Capture all entry points, measure them together and stage them in half precision."""
    captures = []
    for variant in variants:
        with _marked(variant.request, externalize):
            captures.append((variant.request.capture(staging, stage), variant.request))
    with stage("measuring half precision"):
        made = half.apply(captures)
    staged = []
    for variant, (captured, report) in zip(variants, made, strict=True):
        _add(staging, variant, captured, externalize)
        staged.append(Staged(variant, captured, report))
    return staged


def _marked(request: Request, externalize: Sequence[Any] | None) -> AbstractContextManager[None]:
    """Mark the calls of externalized modules in the program that is captured."""
    if not externalize:
        return nullcontext()
    if not isinstance(request.source, torch.nn.Module):
        _check_externalize(externalize)
    with warnings.catch_warnings():  # `add_pytorch_module` warns about classes without instances
        warnings.simplefilter("ignore")
        return marked(list(matches(request.source, as_specs(externalize))))


def _add(
    staging: TorchConverter,
    variant: Variant,
    captured: Captured,
    externalize: Sequence[Any] | None,
) -> None:
    """Stage a captured program."""
    source = variant.request.source
    if externalize and isinstance(source, torch.nn.Module):
        staging.add_pytorch_module(
            source, lambda _: captured.program, externalize, *_names(variant)
        )
    else:
        staging.add_exported_program(captured.program, *_names(variant))


def _names(variant: Variant) -> tuple[Any, ...]:
    names = variant.request.names
    return (names.inputs, names.outputs, names.states, variant.entrypoint)


def _check_externalize(externalize: Sequence[Any] | None) -> None:
    if externalize:
        raise ConversionError(
            "externalize_modules needs the model itself: an exported program has no modules\n"
            "  try   call convert(model, args, externalize_modules=[...])"
        )
