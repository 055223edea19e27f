"""A program that generates, and what its runner must know beside the ports."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset

from ..asset.program import Program
from ..errors import GenerationError

KEY = "coreai_torch.generation"  # in the asset's metadata


@dataclass(frozen=True)
class Description:
    """What `generate` would read off the model's configuration."""

    batch_size: int
    max_length: int  # of prompt and generated tokens together
    vocabulary: int
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    source: str | None = None  # the encoder's input, `input_ids` or `input_features`
    source_shape: tuple[int, ...] = ()  # of it, beside the batch; the most tokens, if it is these
    start_token_id: int | None = None  # of the decoder behind an encoder

    def dumped(self) -> str:
        """As text, for the metadata of an asset."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def loaded(cls, asset: AIModelAsset) -> Description:
        """Read off a saved asset."""
        text = asset.metadata.creator_defined_metadata.get(KEY)
        if text is None:
            raise GenerationError(
                f"{asset.path} does not say how to generate with it\n"
                "  try   an asset that was saved from coreai_torch.llm.convert(model, ...)"
            )
        held: dict[str, Any] = json.loads(text)
        for name in ("eos_token_ids", "source_shape"):  # JSON has no tuples
            held[name] = tuple(held[name])
        return cls(**held)


class GenerationProgram(Program):
    """A `Program` whose assets tell `Generator` how to run them."""

    description: Description

    @classmethod
    def of(cls, program: Program, description: Description) -> GenerationProgram:
        """The same module, described."""
        made: GenerationProgram = cls._from_mlir_module(program.mlir_module)
        made.description = description
        return made

    def save_asset(self, path: Path | str, *args: Any, **kwargs: Any) -> AIModelAsset:
        """As `Program.save_asset`; the description goes into the metadata."""
        asset = super().save_asset(path, *args, **kwargs)
        asset.update_metadata(updates=lambda held: held.set_custom(KEY, self.description.dumped()))
        return asset
