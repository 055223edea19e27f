"""Open a bundle of any kind."""

from __future__ import annotations

from pathlib import Path

from . import runtime
from .host_loading import Load
from .metadata import BundleMetadata
from .runtime import BundleRuntime


def open_bundle(
    bundle: Path | str, engine: str = "runtime", device: str = "cpu", load: Load | None = None
) -> BundleRuntime:
    """Load a bundle to run on the runtime of this machine, or in torch on a device.

    Without `load`, the runtime runs the program as it is written. The engine "isolated" is the
    runtime in a child process, so that a crash of the native code is an exception here.
    """
    metadata = BundleMetadata.read(Path(bundle))
    if metadata.is_static:
        from .static.runtime import open_static

        return open_static(bundle, "torch" if engine == "isolated" else engine, device)
    if metadata.kind == "vlm":
        from .vision.runtime import VisionRuntime

        return VisionRuntime(bundle, engine, device, load)
    if engine == "isolated":
        from .isolated import IsolatedRuntime

        return IsolatedRuntime(bundle)
    return runtime.open_bundle(bundle, engine, device, load)
