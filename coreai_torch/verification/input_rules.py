"""Rules of inputs: offsets, lengths, sorted bounds and others, which random numbers would break.

Rules are found while torch runs the model on the given inputs: the offsets of an embedding bag are
decomposed into arithmetic that does not show them. Others are given by the caller.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from ..capture.random_draws import draw_of
from ..errors import VerificationInputError
from ..torch_compat import TorchDispatchMode, aten, schema_of
from .random_values import drawn
from .subject import Leaves, Subject

Shapes = Callable[[int], list[int]]  # the shape of each leaf in a draw, by its place
Strategy: TypeAlias = "Callable[[torch.Tensor, list[int], torch.Generator], torch.Tensor]"

_BAGS = {aten._embedding_bag.default, aten._embedding_bag_forward_only.default}
_SORTED = {aten.searchsorted.Tensor: 0, aten.searchsorted.Scalar: 0}
_SORTED |= {aten.bucketize.Tensor: 1, aten.bucketize.Scalar: 1}


@dataclass(frozen=True)
class Rule:
    """How one input is drawn; `total` is the number of elements that it divides, if any."""

    strategy: Callable[..., torch.Tensor]
    total: Callable[[Shapes], int] | None = None

    def draw(
        self, given: torch.Tensor, shape: list[int], generator: torch.Generator, shapes: Shapes
    ) -> torch.Tensor:
        """Return a value for the input."""
        more = () if self.total is None else (self.total(shapes),)
        return self.strategy(given, shape, generator, *more)


def rules(subject: Subject, given: Leaves, asked: Mapping[str, Any]) -> dict[int, Rule]:
    """Return the rule of each input that has one, by its place."""
    return {**_found(subject, given), **_drawn(subject), **chosen(subject, given, asked)}


def _drawn(subject: Subject) -> dict[int, Rule]:
    """Return the rules of the inputs for random numbers."""
    draws = {place: draw_of(node) for place, node in enumerate(subject.arguments)}
    return {
        place: Rule(lambda given, shape, generator, draw=draw: draw.sample(shape, generator))
        for place, draw in draws.items()
        if draw is not None
    }


def chosen(subject: Subject, given: Leaves, asked: Mapping[str, Any]) -> dict[int, Rule]:
    """Return the rules that the caller chose, by place; raise if one cannot be used."""
    names = {port.node.name: port.name for port in subject.plan.inputs}
    places: dict[str, int] = {}
    for place, node in enumerate(subject.arguments):
        places.update({node.name: place, names.get(node.name, node.name): place})
    found: dict[int, Rule] = {}
    for name, strategy in asked.items():
        if name not in places:
            raise VerificationInputError(
                f"inputs: no input is called {name!r}\n  try   pass one of {sorted(places)}"
            )
        place = places[name]
        found[place] = Rule(_strategy(name, strategy))
        if not isinstance(given[place], torch.Tensor):
            raise VerificationInputError(
                f"inputs: {name!r} is {given[place]!r}\n  try   name inputs that are tensors"
            )
        shape = list(given[place].shape)
        found[place].strategy(given[place], shape, torch.Generator())
    return found


def _strategy(name: str, given: Any) -> Strategy:
    if callable(given):
        return _checked(name, given)
    if given not in STRATEGIES:
        raise VerificationInputError(
            f"inputs: {name!r} is {given!r}\n  try   pass one of {', '.join(STRATEGIES)}, or a "
            "function of the given tensor, a shape and a torch.Generator"
        )
    return STRATEGIES[given]


def _checked(name: str, function: Strategy) -> Strategy:
    """Return the user's function with a check of what it returns."""

    def draw(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
        value = function(given, shape, generator)
        fits = isinstance(value, torch.Tensor) and list(value.shape) == list(shape)
        if not fits or value.dtype != given.dtype:
            got = f"{value.dtype}{list(value.shape)}" if hasattr(value, "dtype") else repr(value)
            raise VerificationInputError(
                f"inputs: the function for {name!r} returned {got}\n"
                f"  try   return a tensor of {given.dtype}{list(shape)}"
            )
        return value

    return draw


def _offsets(
    given: torch.Tensor, shape: list[int], generator: torch.Generator, total: int | None = None
) -> torch.Tensor:
    """Draw numbers that start at 0 and do not decrease; the last is the total if it was before."""
    most = int(given.max()) if given.numel() and total is None else total or 0
    values = torch.randint(0, most + 1, shape, generator=generator).sort(-1).values
    values[..., :1] = 0
    if shape[-1] > 1 and given.numel() and int(given.flatten()[-1]) >= most:
        values[..., -1] = most
    return values.to(given.dtype)


def _parts(
    given: torch.Tensor, shape: list[int], generator: torch.Generator, total: int
) -> torch.Tensor:
    """Draw lengths whose sum along the last axis is the total."""
    cuts = torch.randint(0, total + 1, [*shape[:-1], shape[-1] + 1], generator=generator)
    cuts = cuts.sort(-1).values
    cuts[..., 0], cuts[..., -1] = 0, total
    return cuts.diff(dim=-1).to(given.dtype)


def _between(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    low, high = (int(given.min()), int(given.max())) if given.numel() else (0, 0)
    return torch.randint(low, high + 1, shape, generator=generator).to(given.dtype)


def _lengths(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw integers from the smallest given length, or 1, to the largest."""
    least = given.clamp(max=1) if given.numel() else given
    return _between(torch.cat([given.flatten(), least.flatten()]), shape, generator)


def _segment_ids(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    return _between(given, shape, generator).sort(-1).values


def _mask(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw from the given values; the first of each row is the largest, so that none is empty."""
    known = given.unique() if given.numel() else given.new_zeros(1)
    values = known[torch.randint(0, known.numel(), shape, generator=generator)]
    values[..., :1] = known.max() if known.dtype != torch.bool else True
    return values


def _probabilities(
    given: torch.Tensor, shape: list[int], generator: torch.Generator
) -> torch.Tensor:
    """Draw from 0 to 1; rows whose sum was 1 are divided by their sum."""
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    sums = given.double().sum(-1) if given.dim() else given.double()
    if given.numel() and torch.allclose(sums, torch.ones_like(sums), atol=1e-2):
        values /= values.sum(-1, keepdim=True)
    return values.to(given.dtype)


def _permutation(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Draw a permutation of the last axis for each row; it starts at the smallest given value."""
    order = torch.rand(shape, generator=generator).argsort(-1)
    return (order + (int(given.min()) if given.numel() else 0)).to(given.dtype)


def _angles(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    values = torch.rand(shape, generator=generator, dtype=torch.float64)
    return ((2 * values - 1) * math.pi).to(given.dtype)


def _sorted(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    return drawn(given, shape, generator).sort(-1).values


def _fixed(given: torch.Tensor, shape: list[int], generator: torch.Generator) -> torch.Tensor:
    """Return the given values, repeated or cut if a size differs."""
    value = given
    for axis, size in enumerate(shape):
        if value.shape[axis] != size:
            value = value.index_select(axis, torch.arange(size) % max(1, value.shape[axis]))
    return value.clone()


STRATEGIES: Mapping[str, Strategy] = {
    "offsets": _offsets,
    "lengths": _lengths,
    "segment_ids": _segment_ids,
    "mask": _mask,
    "probabilities": _probabilities,
    "permutation": _permutation,
    "angles": _angles,
    "sorted": _sorted,
    "fixed": _fixed,
}


def _found(subject: Subject, given: Leaves) -> dict[int, Rule]:
    """Return the rules of inputs that ops of the model have."""
    if not _may_have_rules(subject, given):
        return {}
    leaves = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in given]
    watch = _Watch(leaves)
    # A model that fails on the given inputs is reported by the first trial.
    with subject.untouched(), torch.no_grad(), suppress(Exception), watch:
        subject.run(leaves)
    return watch.found


def _may_have_rules(subject: Subject, given: Leaves) -> bool:
    """Whether an input may be offsets; other rules are seen in the decomposed graph."""
    readers = {*_SORTED, aten.segment_reduce.default}
    return any(node.target in readers for node in subject.exported.graph.nodes) or any(
        isinstance(one, torch.Tensor) and one.dim() == 1 and one.dtype in (torch.int32, torch.int64)
        for one in given
    )


class _Watch(TorchDispatchMode):  # type: ignore[misc]  # mypy does not follow torch
    """Notes the inputs that ops read as offsets, lengths or bounds."""

    def __init__(self, leaves: Sequence[Any]) -> None:
        super().__init__()
        self._places = {
            (one.data_ptr(), one.numel()): place
            for place, one in enumerate(leaves)
            if isinstance(one, torch.Tensor) and one.numel()
        }
        self.found: dict[int, Rule] = {}

    def __torch_dispatch__(self, op: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        named = dict(zip((one.name for one in schema_of(op).arguments), args, strict=False))
        named |= kwargs or {}
        if op in _BAGS:
            self._note(named["offsets"], Rule(_offsets, self._extent(named["indices"], 0)))
        elif op in _SORTED:
            self._note(args[_SORTED[op]], Rule(_sorted))
        elif op is aten.segment_reduce.default:
            total = self._extent(named["data"], named.get("axis", 0))
            self._note(named.get("lengths"), Rule(_parts, total))
            self._note(named.get("offsets"), Rule(_offsets, total))
        return op(*args, **(kwargs or {}))

    def _note(self, value: Any, rule: Rule) -> None:
        place = self._place(value)
        if place is not None:
            self.found[place] = rule

    def _place(self, value: Any) -> int | None:
        is_tensor = isinstance(value, torch.Tensor)
        return self._places.get((value.data_ptr(), value.numel())) if is_tensor else None

    def _extent(self, value: torch.Tensor, axis: int) -> Callable[[Shapes], int]:
        """Return the size of an axis in a draw, which depends on the sizes of the draw."""
        place, size = self._place(value), int(value.shape[axis])
        if place is None:
            return lambda shapes: size
        return lambda shapes: shapes(place)[axis]
