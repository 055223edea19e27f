"""Open a bundle of any kind; load its program in the form that is fastest on this machine."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset

from ...asset.runtime_thread import load_model
from ...errors import ConversionError
from ...targets.linux_loading.compiling import can_edit, load_edited
from ...targets.linux_loading.edits import edit
from ..native import Load
from .engines import check_engine
from .metadata import BundleMetadata
from .runtime import BundleRuntime


def fast_loading(expand_weights: bool | None) -> Load:
    """Return the function that loads an asset in its fastest form.

    Compressed weights are expanded if `expand_weights`; with None, if the memory suffices.
    """

    async def load(asset: AIModelAsset) -> Any:
        if not can_edit():
            return await load_model(asset)
        try:
            return await load_edited(asset, lambda build: edit(build, expand_weights))
        except ConversionError as error:
            warnings.warn(f"{asset.path} runs as it is written: {error}", stacklevel=2)
            return await load_model(asset)

    return load


def open_bundle(
    bundle: Path | str, engine: str = "runtime", device: str = "cpu", load: Load | None = None
) -> BundleRuntime:
    """Load a bundle to run on the runtime of this machine, or in torch on a device.

    Without `load`, the runtime runs the program as it is written. The engine "isolated" is the
    runtime in a child process, so that a crash of the native code is an exception here.
    """
    metadata = BundleMetadata.read(Path(bundle))
    if metadata.is_static and engine == "isolated":
        engine = "torch"
    if engine != "isolated":
        check_engine(engine, device)
    if metadata.is_static:
        from .static.blocks import StaticRuntime

        # The Linux runtime of coreai-core 1.0.0b3 takes interleaved states only as arrays that
        # `NDArray.from_descriptor` allocates, and gives no access to their content.
        return StaticRuntime(bundle, "torch", device)
    if metadata.kind == "vlm":
        from .vision.embedded_rows import VisionRuntime

        return VisionRuntime(bundle, engine, device, load)
    return BundleRuntime(bundle, engine, device, load)
