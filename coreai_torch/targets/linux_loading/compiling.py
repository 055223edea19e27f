"""Load an asset on the Linux runtime after edits of its program that keep all numbers.

The asset does not change: the edited module exists until it is compiled.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Callable
from importlib import metadata
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from coreai.authoring import AIModelAsset
from coreai.runtime import AIModel

from ...asset.mlir_module import mlir_module_of
from ...compression.memory import release_freed_memory
from ...errors import ConversionError
from ...ir.build import Build

# Versions of coreai-core on whose runtime the edited programs were compared with the original ones.
_COMPARED = ("1.0.0b3",)


def can_edit() -> bool:
    """Return whether this machine compiles edited programs: with a compared runtime on Linux."""
    return platform.system() == "Linux" and metadata.version("coreai-core") in _COMPARED


async def load_edited(asset: AIModelAsset, edit: Callable[[Build], None]) -> Any:
    """Return the model of an asset whose module `edit` changed; raise if it does not compile."""
    with TemporaryDirectory(suffix=".aimodelx") as folder:
        await asyncio.to_thread(_compile, asset, edit, Path(folder))
        release_freed_memory()
        return await AIModel.load(path=folder, specialization_options=None)


def _compile(asset: AIModelAsset, edit: Callable[[Build], None], folder: Path) -> None:
    # `AIModelAsset._write_odix` does the same with the module of the file.
    from coreai._compiler._mlir_libs._coreaiIR._bindings import compiler

    module = mlir_module_of(asset.program)
    reported: list[str] = []

    def keep(diagnostic: Any) -> bool:
        reported.append(str(diagnostic))
        return True

    with Build.over(module) as build:
        edit(build)
        # The compiler reports "split_size_or_sections must be a constant" and compiles the op.
        handler = module.context.attach_diagnostic_handler(keep)
        try:
            module.operation.verify()
            compiler.compile_to_binary(
                module=module, output_directory=folder, enable_debug_info=False
            )
            compiler.serialize_module(module=module, path=folder / "main-universal.odix")
        except Exception as cause:
            message = "; ".join([str(cause), *reported])
            raise ConversionError(f"the edited program does not compile: {message}") from cause
        finally:
            handler.detach()
