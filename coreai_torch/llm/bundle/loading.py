"""`load`: load a bundle to generate text."""

from __future__ import annotations

from pathlib import Path

from .language_model import LanguageModel
from .metadata import BundleMetadata


def load(
    bundle: Path | str,
    *,
    engine: str = "runtime",
    device: str = "cpu",
    expand_weights: bool | None = None,
) -> LanguageModel:
    """Load a bundle that `export` wrote, to generate text on this machine.

    The model of a vision-language bundle also takes `images`. On Linux the program is loaded in an
    equivalent form that runs faster; the bundle does not change.

    ```text
    model = llm.load("qwen3_0_6b")
    print(model.chat("Why is the sky blue?", temperature=0.7, seed=0))
    ```

    Args:
        bundle: the folder of the bundle.
        engine: "runtime" for the runtime of this machine, "torch" to compute the program op by op
            in torch.
        device: the device of torch.
        expand_weights: expand compressed weights when they are loaded, on Linux. The numbers are
            the same, and each token takes the time of a bundle without compression, but the weights
            need the memory of such a bundle. None expands them if three times this memory is
            available.
    """
    if BundleMetadata.read(Path(bundle)).kind == "vlm":
        from .vision.language_model import VisionLanguageModel

        return VisionLanguageModel(
            bundle, engine=engine, device=device, expand_weights=expand_weights
        )
    return LanguageModel(bundle, engine=engine, device=device, expand_weights=expand_weights)
