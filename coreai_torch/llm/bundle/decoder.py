"""A bundle as a model of `transformers`, so that its `generate` chooses the tokens.

Processors, sampling, beams and stopping criteria are those of transformers. Each step passes the
complete tokens; the pool of rows runs only those that are not in the cache.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import GenerationConfig, GenerationMixin, PreTrainedConfig, PreTrainedModel
from transformers.modeling_outputs import CausalLMOutput

from ...errors import GenerationError
from .rows import RowPool
from .runtime import BundleRuntime


class BundleConfig(PreTrainedConfig):  # type: ignore[misc]  # mypy does not follow transformers
    """The facts that `generate` reads from a configuration."""

    model_type = "coreai_bundle"
    vocab_size: int = 0
    max_position_embeddings: int = 0


class BundleDecoder(PreTrainedModel, GenerationMixin):  # type: ignore[misc]  # mypy does not follow transformers
    """A model whose logits come from the runtime."""

    config_class = BundleConfig
    main_input_name = "input_ids"

    def __init__(self, runtime: BundleRuntime, generation: dict[str, Any]) -> None:
        """Wrap a loaded bundle; `generation` is the generation config of its model."""
        metadata = runtime.metadata
        config = BundleConfig(
            vocab_size=metadata.vocab_size, max_position_embeddings=metadata.max_context_length
        )
        super().__init__(config)
        self.pool = RowPool(runtime)
        self.generation_config = GenerationConfig.from_dict(generation)

    @property
    def device(self) -> torch.device:
        """Return the CPU: tokens and logits are there."""
        return torch.device("cpu")

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the logits."""
        return torch.float32

    def forward(
        self, input_ids: Tensor, attention_mask: Tensor | None = None, **_: Any
    ) -> CausalLMOutput:
        """Return the logits after the last token, `[batch, 1, vocab]`."""
        rows = [tuple(row) for row in unpadded(input_ids, attention_mask)]
        return CausalLMOutput(logits=self.pool.logits(rows)[:, None])


def unpadded(tokens: Tensor, mask: Tensor | None) -> list[list[int]]:
    """Return the rows without the padding on their left."""
    if mask is None:
        return [list(row) for row in tokens.tolist()]
    visible = mask.bool()
    if bool((visible.int().diff(dim=1) < 0).any()) or not bool(visible[:, -1].all()):
        raise GenerationError(
            "attention_mask hides tokens after the first visible one\n"
            "  try   pad prompts on the left: tokenizer(texts, padding=True, padding_side='left')"
        )
    return [row[keep].tolist() for row, keep in zip(tokens, visible, strict=True)]
