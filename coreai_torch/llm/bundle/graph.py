"""The `main` function of a bundle: the unmodified model over a stacked cache.

Inputs are `input_ids` `[1, q]` and `position_ids` `[1, s]`, where s counts the cached and the new
tokens. The new rows are written to the slots from s - q to s, and attention reads the slots before
s. The sizes q, s and the number of slots are dynamic and unbounded.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ...capture.prepare import prepare
from ...converter import TorchConverter, capture_rules
from ...errors import ExportError
from ..pretranspose import transpose_weights
from .cache_ops import register_cache_ops
from .compute_dtype import compute_dtype
from .int8_cache import COLUMNS
from .layer_shape import LayerShape
from .metadata import INPUTS, KEYS, LOGITS, VALUES
from .stacked_cache import StackedStates, stacked_cache

# Example sizes: all different, and none is 0 or 1, on which torch would specialize.
_QUERY, _TOTAL, _SLOTS = 3, 7, 11


class Main(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The model with the inputs, states and output of a bundle."""

    def __init__(
        self, model: nn.Module, layers: Sequence[LayerShape], kv_cache: str = "float"
    ) -> None:
        super().__init__()
        self.model, self.layers = model, list(layers)
        self.has_int8_cache = kv_cache == "int8"
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(self, input_ids: Tensor, position_ids: Tensor, keys: Tensor, values: Tensor) -> Any:
        """Return the float16 logits of all new tokens; update both states in place."""
        query, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - query
        states = StackedStates(keys, values)
        arguments = {}
        if self.takes_positions:
            last = torch.arange(query, dtype=torch.int32) + offset
            arguments["position_ids"] = position_ids.index_select(1, last).long()
        output = self.model(
            input_ids=input_ids.long(),
            past_key_values=stacked_cache(states, len(self.layers), offset, total),
            use_cache=True,
            **arguments,
        )
        states.write(offset, total)
        keys.copy_(states.keys)
        values.copy_(states.values)
        return output.logits.to(torch.float16)

    def empty_states(self, slots: int) -> tuple[Tensor, Tensor]:
        """Return zeroed keys and values; smaller layers use a part of their place."""
        heads = max(max(one.key_heads, one.value_heads) for one in self.layers)
        width = max(max(one.key_width, one.value_width) for one in self.layers)
        dtype = compute_dtype(self.model)
        if self.has_int8_cache:
            width, dtype = width + COLUMNS, torch.int8
        shape = (len(self.layers), 1, heads, slots, width)
        return torch.zeros(shape, dtype=dtype), torch.zeros(shape, dtype=dtype)


def stage_main(
    converter: TorchConverter, main: Main, max_context_length: int, *, turn_weights: bool
) -> None:
    """Export the module and stage it as the function `main`."""
    register_cache_ops(converter)
    example = (
        torch.zeros(1, _QUERY, dtype=torch.int32),
        torch.arange(_TOTAL, dtype=torch.int32)[None],
        *main.empty_states(_SLOTS),
    )
    rules = capture_rules(converter)
    try:
        program = prepare(main, example, None, _sizes(Dim("total")), rules=rules).program
    except ExportError:
        # MPT slices a table of biases, which has one for each token of the context, from
        # max(0, size - total): torch exports this for a start above 0 only, so for totals below
        # the context. The slice that the program contains is right for the context itself, too.
        limited = Dim("total", max=max_context_length - 1)
        program = prepare(main, example, None, _sizes(limited), rules=rules).program
    if turn_weights:
        transpose_weights([program])
    converter.add_exported_program(program, list(INPUTS), [LOGITS], [KEYS, VALUES])


def _sizes(total: Any) -> tuple[Any, ...]:
    """Return the dynamic sizes of the inputs and states."""
    slots = Dim("slots")
    return ({1: Dim("query")}, {1: total}, {3: slots}, {3: slots})
