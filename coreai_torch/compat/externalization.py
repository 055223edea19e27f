"""Externalization in two steps, under the names of the published converter 0.4.3."""

from __future__ import annotations

from typing import Any

import torch

from ..converter import get_decomp_table
from ..passes.externalize.by_hand import (
    NAMESPACE,
    marked_submodules,
    patch_model,
    subexport,
)
from ..passes.externalize.spec import ExternalizeSpec

_EXTERNALIZE_NAMESPACE = NAMESPACE
_find_marked_submodules = marked_submodules
_patch_model_for_externalization = patch_model
_subexport_and_restore = subexport


def _torch_export_module(prep: Any) -> torch.export.ExportedProgram:
    """Export one module by itself: `prep` has `module`, `args`, and may have `dynamic_shapes`.

    This converter cuts externalized modules from one export of the model, so it calls this
    function nowhere; programs that replace it change nothing.
    """
    kwargs, shapes = (getattr(prep, name, None) for name in ("kwargs", "dynamic_shapes"))
    exported = torch.export.export(prep.module, tuple(prep.args), kwargs, dynamic_shapes=shapes)
    return exported.run_decompositions(get_decomp_table())


__all__ = [
    "_EXTERNALIZE_NAMESPACE",
    "ExternalizeSpec",
    "_find_marked_submodules",
    "_patch_model_for_externalization",
    "_subexport_and_restore",
    "_torch_export_module",
]
