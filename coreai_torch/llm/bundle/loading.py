"""`load`: load a bundle to generate text."""

from __future__ import annotations

from pathlib import Path

from .language_model import LanguageModel
from .metadata import BundleMetadata


def load(bundle: Path | str, *, engine: str = "runtime", device: str = "cpu") -> LanguageModel:
    """Load a bundle that `export` wrote, to generate text on this machine.

    The model of a vision-language bundle also takes `images`. `engine="torch"` computes the program
    op by op in torch, on `device`.

    ```text
    model = llm.load("qwen3_0_6b")
    print(model.chat("Why is the sky blue?", temperature=0.7, seed=0))
    ```
    """
    if BundleMetadata.read(Path(bundle)).kind == "vlm":
        from .vision.language_model import VisionLanguageModel

        return VisionLanguageModel(bundle, engine=engine, device=device)
    return LanguageModel(bundle, engine=engine, device=device)
