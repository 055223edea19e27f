"""Externalization under the module name that other programs import."""

from .compat.externalization import (
    _EXTERNALIZE_NAMESPACE,
    ExternalizeSpec,
    _find_marked_submodules,
    _patch_model_for_externalization,
    _subexport_and_restore,
    _torch_export_module,
)

__all__ = [
    "_EXTERNALIZE_NAMESPACE",
    "ExternalizeSpec",
    "_find_marked_submodules",
    "_patch_model_for_externalization",
    "_subexport_and_restore",
    "_torch_export_module",
]
