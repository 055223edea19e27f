"""States of a fixed size: convolutions and recurrences of hybrid models.

The engine keeps at most two states beside the keys and values, clears them when it starts again,
and never returns to a prefix with them. They start with zeros whenever no token is cached, so that
their earlier content does not matter.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin, LinearAttentionCacheLayerMixin

from ..export_steps import unsupported_cache
from .metadata import CONVOLUTION, RECURRENT
from .stacked_cache import StackedLayer, StackedStates

_CHECKED = 6  # tokens that are run at once and in two chunks


@dataclass(frozen=True)
class FixedState:
    """Name, sizes and dtype of the stacked states of all linear layers."""

    name: str
    shape: tuple[int, ...]  # [layers, 1, ...]
    dtype: torch.dtype

    def zeros(self) -> Tensor:
        """Return the content before the first token."""
        return torch.zeros(self.shape, dtype=self.dtype)


@dataclass(frozen=True)
class LinearLayers:
    """Which layers have keys and values, which have fixed states, and these states."""

    has_keys: tuple[bool, ...]
    is_linear: tuple[bool, ...]
    states: tuple[FixedState, ...]

    @classmethod
    def of(cls, model: Any, cache: Any) -> LinearLayers:
        """Read the kinds of layers from a cache; raise for states that the engine cannot keep."""
        layers = cache.layers
        linear = [one for one in layers if isinstance(one, LinearAttentionCacheLayerMixin)]
        name = type(model).__name__
        if not any(isinstance(one, CacheLayerMixin) for one in layers):
            raise unsupported_cache(name, "has no attention, but the engine needs keys and values")
        if any(one.number_of_states != 1 for one in linear):
            raise unsupported_cache(
                name, "has several convolutions in a layer; the engine keeps 4 states"
            )
        found = [
            _stacked(name, CONVOLUTION, [one.conv_states[0] for one in linear]),
            _stacked(name, RECURRENT, [one.recurrent_states[0] for one in linear]),
        ]
        has_keys = tuple(isinstance(one, CacheLayerMixin) for one in layers)
        is_linear = tuple(isinstance(one, LinearAttentionCacheLayerMixin) for one in layers)
        return cls(has_keys, is_linear, tuple(one for one in found if one is not None))

    def started(self, fixed: Sequence[Tensor], offset: int) -> list[Tensor]:
        """Return the states; zeros if no token is cached."""
        is_first = (torch.arange(1, dtype=torch.int32) + offset) == 0
        return [torch.where(is_first, torch.zeros_like(one), one) for one in fixed]

    def cache(
        self, states: StackedStates, fixed: Sequence[Tensor], offset: int, total: int
    ) -> Cache:
        """Return a cache that contains `offset` tokens and will contain `total`."""
        given = {state.name: list(one) for state, one in zip(self.states, fixed, strict=True)}
        layers: list[Any] = []
        attention = linear = 0
        for has_keys, is_linear in zip(self.has_keys, self.is_linear, strict=True):
            place = (states, attention, offset, total)
            own = {name: one[linear] for name, one in given.items()} if is_linear else {}
            fixed_pair = (own.get(CONVOLUTION), own.get(RECURRENT))
            if not is_linear:
                layers.append(StackedLayer(*place))
            elif has_keys:
                layers.append(LinearAndStackedLayer(fixed_pair, place))
            else:
                layers.append(LinearLayer(fixed_pair))
            attention, linear = attention + has_keys, linear + is_linear
        return Cache(layers=layers)

    def content(self, cache: Cache) -> list[Tensor]:
        """Return the states after the new tokens."""
        linear = [one for one in cache.layers if isinstance(one, LinearLayer)]
        parts: dict[str, list[Any]] = {
            CONVOLUTION: [one.conv_states[0] for one in linear],
            RECURRENT: [one.recurrent_states[0] for one in linear],
        }
        return [
            torch.stack([part.to(state.dtype) for part in parts[state.name]])
            for state in self.states
        ]


def _stacked(model: str, name: str, values: Sequence[Tensor | None]) -> FixedState | None:
    """Return the state of all layers, stacked; None if no layer has it."""
    found = [one for one in values if one is not None]
    if not found:
        return None
    if len(found) != len(values) or len({(one.shape, one.dtype) for one in found}) != 1:
        raise unsupported_cache(
            model, "has layers with different states; the engine keeps 4 states"
        )
    return FixedState(name, (len(found), *found[0].shape), found[0].dtype)


class LinearLayer(LinearAttentionCacheLayerMixin):  # type: ignore[misc]  # mypy does not follow transformers
    """A layer that always has previous states, which are zeros before the first token."""

    def __init__(self, fixed: tuple[Tensor | None, Tensor | None]) -> None:
        LinearAttentionCacheLayerMixin.__init__(self)
        convolution, recurrent = fixed
        self.conv_states, self.recurrent_states = {0: convolution}, {0: recurrent}
        self.is_conv_states_initialized = {0: convolution is not None}
        self.is_recurrent_states_initialized = {0: recurrent is not None}
        self.has_previous_state = {0: True}

    def lazy_initialization(self, *_: Any, **__: Any) -> None:
        """Do nothing: the states exist from the start."""

    def update_conv_state(self, conv_states: Tensor, *_: Any, **__: Any) -> Tensor:
        """Keep the last inputs and return all that the convolution reads."""
        old = self.conv_states[0]
        assert old is not None
        full = torch.cat([old.to(conv_states.dtype), conv_states], -1)
        self.conv_states[0] = full[..., -old.shape[-1] :]
        return full

    def update_recurrent_state(self, recurrent_states: Tensor, *_: Any, **__: Any) -> Tensor:
        """Keep the state after the last token."""
        self.recurrent_states[0] = recurrent_states
        return recurrent_states


class LinearAndStackedLayer(LinearLayer, StackedLayer):
    """A layer with fixed states and with keys and values."""

    def __init__(self, fixed: tuple[Tensor | None, Tensor | None], place: Any) -> None:
        StackedLayer.__init__(self, *place)
        LinearLayer.__init__(self, fixed)


def check_chunks(model: Any) -> None:
    """Raise if a model loses its state between chunks, in which the engine runs long prompts."""
    positions = torch.arange(_CHECKED)[None]
    tokens = positions % model.config.get_text_config(decoder=True).vocab_size
    takes_positions = "position_ids" in inspect.signature(model.forward).parameters
    half = _CHECKED // 2

    def run(places: slice, cache: Any = None) -> Any:
        more = {"position_ids": positions[:, places]} if takes_positions else {}
        return model(input_ids=tokens[:, places], past_key_values=cache, use_cache=True, **more)

    with torch.no_grad():
        want = run(slice(None)).logits
        first = run(slice(half))
        got = run(slice(half, None), first.past_key_values).logits
    gap = (got.float() - want[:, half:].float()).abs().max() / want.float().abs().max()
    if not float(gap) <= 2e-2:  # float16 differs by 1e-3; a lost state changes the logits entirely
        raise unsupported_cache(
            type(model).__name__,
            "itself computes other logits if a prompt is run in chunks, but the engine runs long "
            "prompts in chunks",
        )
