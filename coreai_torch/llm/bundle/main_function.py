"""The `main` function of a bundle: the unmodified model over a stacked cache.

Inputs are `input_ids` `[1, q]` and `position_ids` `[1, s]`, where s counts the cached and the new
tokens. The new rows are written to the slots from s - q to s, and attention reads the slots before
s. The sizes q, s and the number of slots are dynamic and unbounded.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.export import Dim

from ...capture.prepare import prepare
from ...converter import TorchConverter, capture_rules
from ...errors import ExportError
from ..pretranspose import arrange_weights
from .cache_ops import new_positions, register_cache_ops
from .int8_cache import COLUMNS
from .metadata import INPUTS, KEYS, LOGITS, VALUES
from .reference import compute_dtype
from .replacements import exportable
from .stacked_cache import StackedStates, empty_states, stacked_cache
from .states import LayerShape

if TYPE_CHECKING:
    from .linear_states import LinearLayers

# Example sizes: all different, and none is 0 or 1, on which torch would specialize.
_QUERY, _TOTAL, _SLOTS = 3, 7, 11


class Main(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """The model with the inputs, states and output of a bundle."""

    def __init__(
        self,
        model: nn.Module,
        layers: Sequence[LayerShape],
        kv_cache: str = "float",
        linear: LinearLayers | None = None,
    ) -> None:
        super().__init__()
        self.linear = linear
        self.model, self.layers = model, list(layers)
        self.has_int8_cache = kv_cache == "int8"
        self.takes_positions = "position_ids" in inspect.signature(model.forward).parameters

    def forward(
        self,
        input_ids: Tensor,
        position_ids: Tensor,
        keys: Tensor,
        values: Tensor,
        fixed: Sequence[Tensor] = (),
    ) -> Any:
        """Return the float16 logits of all new tokens; update the states in place."""
        query, total = input_ids.shape[1], position_ids.shape[1]
        offset = total - query
        states = StackedStates(keys, values)
        arguments = {}
        if self.takes_positions:
            arguments["position_ids"] = new_positions(position_ids, offset, total).long()
        if self.linear is None:
            cache = stacked_cache(states, len(self.layers), offset, total)
        else:
            started = self.linear.started(fixed, offset)
            cache = self.linear.cache(states, started, offset, total)
        output = self.model(
            input_ids=input_ids.long(), past_key_values=cache, use_cache=True, **arguments
        )
        if self.linear is not None:
            for old, new in zip(fixed, self.linear.content(cache), strict=True):
                old.copy_(new)
        states.write(offset, total, keys, values)
        return output.logits.to(torch.float16)

    def empty_states(self, slots: int) -> tuple[Tensor, Tensor]:
        """Return zeroed keys and values."""
        if self.has_int8_cache:
            return empty_states(self.layers, slots, torch.int8, columns=COLUMNS)
        return empty_states(self.layers, slots, compute_dtype(self.model))


def stage_main(
    converter: TorchConverter, main: Main, max_context_length: int, *, turn_weights: bool
) -> None:
    """Export the module and stage it as the function `main`."""
    register_cache_ops(converter)
    example: tuple[Any, ...] = (
        torch.zeros(1, _QUERY, dtype=torch.int32),
        torch.arange(_TOTAL, dtype=torch.int32)[None],
        *main.empty_states(_SLOTS),
    )
    states = [KEYS, VALUES]
    if main.linear is not None:
        example = (*example, [state.zeros() for state in main.linear.states])
        states += [state.name for state in main.linear.states]
    with exportable(main.model):
        program = _captured(main, example, capture_rules(converter), max_context_length)
    arrange_weights([program], turned=turn_weights)
    converter.add_exported_program(program, list(INPUTS), [LOGITS], states)


def _captured(main: Main, example: Any, rules: Any, max_context_length: int) -> Any:
    """Export for any sizes, or for sizes below the context if the model has tables of its size.

    MPT slices a table of biases from max(0, size - total): torch exports this for a start above 0
    only. GPT-Neo slices a table of masks from total - query to total. The slices that the program
    contains are right for the context itself, too, and for one token.
    """
    fixed = 0 if main.linear is None else len(main.linear.states)
    below = max_context_length - 1
    tries: list[tuple[Any, Any]] = [(Dim("query"), Dim("total"))]
    if below > max(_QUERY, _TOTAL):  # the example must be within the limits
        tries += [
            (Dim("query"), Dim("total", max=below)),
            (Dim("query", min=2, max=below), Dim("total", min=2, max=below)),
        ]
    errors: list[ExportError] = []
    for query, total in tries:
        try:
            return prepare(main, example, None, _sizes(query, total, fixed), rules=rules).program
        except ExportError as error:
            errors.append(error)
    raise errors[0]


def _sizes(query: Any, total: Any, fixed: int) -> tuple[Any, ...]:
    """Return the dynamic sizes of the inputs and states."""
    slots = Dim("slots")
    sizes = ({1: query}, {1: total}, {3: slots}, {3: slots})
    return (*sizes, [None] * fixed) if fixed else sizes
