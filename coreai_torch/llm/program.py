"""A generation program, and the description that its runner needs besides the ports."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from coreai.authoring import AIModelAsset

from ..asset.program import Program
from ..errors import GenerationError

KEY = "coreai_torch.generation"  # in the asset's metadata


def token_ids(given: int | Sequence[int] | None) -> tuple[int, ...]:
    """Return the tokens of a setting of transformers: a token, several, or none."""
    if given is None:
        return ()
    return (int(given),) if isinstance(given, int) else tuple(int(one) for one in given)


@dataclass(frozen=True)
class Description:
    """The facts that `generate` of transformers reads from the model's configuration."""

    batch_size: int
    max_length: int  # of prompt and generated tokens together
    vocabulary: int
    eos_token_ids: tuple[int, ...]
    pad_token_id: int | None
    source: str | None = None  # the encoder's input, `input_ids` or `input_features`
    # Shape of the encoder's input without the batch; for tokens, their maximum number.
    source_shape: tuple[int, ...] = ()
    start_token_id: int | None = None  # of a decoder with an encoder

    def to_json(self) -> str:
        """Serialize for the metadata of an asset."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_asset(cls, asset: AIModelAsset) -> Description:
        """Read the description from the metadata of a saved asset."""
        text = asset.metadata.creator_defined_metadata.get(KEY)
        if text is None:
            raise GenerationError(
                f"{asset.path} has no generation metadata, so it cannot generate\n"
                "  try   pass an asset that was saved from coreai_torch.llm.convert(model, ...)"
            )
        fields: dict[str, Any] = json.loads(text)
        for name in ("eos_token_ids", "source_shape"):  # JSON has no tuples
            fields[name] = tuple(fields[name])
        return cls(**fields)


class GenerationProgram(Program):
    """A `Program` whose assets have the description that `Generator` needs."""

    description: Description

    @classmethod
    def of(cls, program: Program, description: Description) -> GenerationProgram:
        """Return a program with the same module and a description."""
        described: GenerationProgram = cls._from_mlir_module(program.mlir_module)
        described.description = description
        described.metadata = {KEY: description.to_json()}
        return described
