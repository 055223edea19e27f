"""The functions of a vision-language bundle: `main` of the encoder, embedding and decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ....capture.prepare import prepare
from ....converter import TorchConverter, capture_rules
from ...pretranspose import arrange_weights
from ..cache_ops import read_rows, register_cache_ops, write_rows
from ..metadata import LOGITS
from ..replacements import exportable
from ..stacked_cache import StackedStates, empty_states, stacked_cache
from ..states import LayerShape
from .family import MARKER_WIDTH, Family, Step
from .names import EMBEDDINGS, EMBEDS, FEATURES, PIXELS, POSITIONS, STATES, TOKENS

_QUERY, _TOTAL = 3, 7  # example sizes; torch specializes on 0 and 1
_COUNT_WIDTH = 3


class Vision(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The image encoder: normalized pixels to marked features `[1, tokens, width]`."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self.model, self.family = family.model, family

    def forward(self, pixel_values: Tensor) -> Tensor:
        """Return the features of one image."""
        features = self.family.features(pixel_values).to(torch.float16)
        mark = torch.ones(features.shape[0], 1, dtype=torch.float16)
        rest = torch.zeros(features.shape[0], MARKER_WIDTH - 1, dtype=torch.float16)
        return torch.cat([features, mark, rest], -1)[None]


class Embedding(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The embedding of tokens `[1, n]`, with the marker of text."""

    def __init__(self, family: Family) -> None:
        super().__init__()
        self.table = family.model.get_input_embeddings()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return embeddings `[1, n, width]`."""
        # The token of an image may lie behind the table; its row is replaced by a feature.
        known = input_ids.long().clamp(max=self.table.num_embeddings - 1)
        return nn.functional.pad(self.table(known).to(torch.float16), (0, MARKER_WIDTH))


class Decoder(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The decoder over marked rows and a stacked cache of fixed length."""

    def __init__(self, family: Family, layers: Sequence[LayerShape]) -> None:
        super().__init__()
        self.model, self.family, self.layers = family.model, family, list(layers)
        self.dtype = family.dtype

    def forward(
        self, inputs_embeds: Tensor, position_ids: Tensor, keys: Tensor, values: Tensor
    ) -> Any:
        """Return the float16 logits of all rows; update both states in place."""
        query, total = inputs_embeds.shape[1], position_ids.shape[1]
        offset, hidden = total - query, inputs_embeds.shape[2] - MARKER_WIDTH
        states = StackedStates(keys, values)
        is_image = inputs_embeds[0, :, hidden] > 0.5
        step = Step(is_image, offset, total, _Counts(states, len(self.layers), offset, total))
        output = self.model(
            inputs_embeds=inputs_embeds[:, :, :hidden].to(self.dtype),
            past_key_values=stacked_cache(states, len(self.layers), offset, total),
            use_cache=True,
            **self.family.arguments(step, self.dtype),
        )
        states.write(offset, total, keys, values)
        return output.logits.to(torch.float16)

    def empty_states(self, slots: int) -> tuple[Tensor, Tensor]:
        """Return zeroed keys and values; the last layer counts image tokens if needed."""
        more = int(self.family.counts_images)
        return empty_states(self.layers, slots, self.dtype, more_layers=more)


class _Counts:
    """The layer of the key cache that counts the image tokens up to each slot."""

    def __init__(self, states: StackedStates, layer: int, offset: Any, total: Any) -> None:
        self.states, self.layer, self.offset, self.total = states, layer, offset, total

    def previous(self) -> Tensor:
        """Return the digits `[1, 3]` of the last used slot, or zeros if there is none."""
        rows = read_rows(self.states.keys, self.layer, self.total, 1, _COUNT_WIDTH)
        last = torch.arange(1) + self.offset - 1
        digits = rows.index_select(2, last.clamp(min=0))[0, 0]
        return torch.where(last[:, None] >= 0, digits, torch.zeros((), dtype=digits.dtype))

    def write(self, digits: Tensor) -> None:
        """Store the digits `[q, 3]` of the new slots."""
        span = (self.layer, self.offset, self.total)
        self.states.keys = write_rows(self.states.keys, digits[None, None, None], *span)


def stage_vision(converter: TorchConverter, family: Family, *, turn_weights: bool) -> None:
    """Stage the encoder of images of one size."""
    size = family.image.size
    example = (torch.zeros(1, 3, size, size),)
    program = prepare(Vision(family), example, None, None, rules=capture_rules(converter)).program
    arrange_weights([program], turned=turn_weights)
    converter.add_exported_program(program, [PIXELS], [FEATURES])


def stage_embedding(converter: TorchConverter, family: Family) -> None:
    """Stage the embedding of any number of tokens."""
    example = (torch.zeros(1, _QUERY, dtype=torch.int32),)
    sizes = ({1: Dim("tokens")},)
    rules = capture_rules(converter)
    program = prepare(Embedding(family), example, None, sizes, rules=rules).program
    converter.add_exported_program(program, [TOKENS], [EMBEDDINGS])


def stage_decoder(
    converter: TorchConverter, decoder: Decoder, slots: int, *, turn_weights: bool
) -> None:
    """Stage the decoder; the numbers of new and cached tokens are dynamic, the slots fixed."""
    register_cache_ops(converter)
    width = decoder.model.get_input_embeddings().embedding_dim + MARKER_WIDTH
    example = (
        torch.zeros(1, _QUERY, width, dtype=torch.float16),
        torch.arange(_TOTAL, dtype=torch.int32)[None],
        *decoder.empty_states(slots),
    )
    sizes = ({1: Dim("query")}, {1: Dim("total")}, None, None)
    rules = capture_rules(converter)
    with exportable(decoder.model):
        program = prepare(decoder, example, None, sizes, rules=rules).program
    arrange_weights([program], turned=turn_weights)
    converter.add_exported_program(program, [EMBEDS, POSITIONS], [LOGITS], list(STATES))
