"""Inputs to try: the given ones, random ones like them, edge values, and other dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import sympy  # type: ignore[import-untyped]  # ships no types
import torch
import torch.fx as fx

from .input_rules import Rule, rules
from .random_values import drawn, spread_of
from .subject import Leaves, Subject

Sizes = dict[Any, int]  # from the symbol of a dynamic size to its value
_GROWTH = 8  # the largest size is tried if it is at most so many times the given one, or 16
_LARGE = 30.0  # times the standard deviation of the given values; exp() stays finite in float32


@dataclass(frozen=True)
class Draw:
    """One set of inputs, made on demand; each call on a state gets its own."""

    label: str
    leaves: Callable[[int], Leaves]
    must_be_finite: bool = False  # it may be outside the domain of the model
    is_edge: bool = False  # it is unlike the given inputs


@dataclass(frozen=True)
class TrialPlan:
    """How many inputs of each kind are tried."""

    seeds: int = 2  # random inputs in the domain of the given ones
    sizes: int = 3  # other values of the dynamic sizes: the smallest, between, the largest
    edges: bool = True  # other magnitudes and signs, zeros, extremes and special values
    steps: int = 3  # calls in a row, if the program has state
    # How single inputs are drawn, by name: one of `input_rules.STRATEGIES`, or a function.
    inputs: Mapping[str, Any] = field(default_factory=dict)


def draws(subject: Subject, given: Leaves, plan: TrialPlan) -> Iterator[Draw]:
    """Yield all inputs to try, the given ones first."""
    nodes = subject.arguments
    known = _known(nodes, given)
    ruled = rules(subject, given, plan.inputs)
    random, each = partial(_random, ruled), partial(_each, ruled)
    yield Draw("given", lambda step: given)
    for sizes in _others(subject.exported.range_constraints, known, plan.sizes):
        yield Draw(_describe(nodes, sizes), random(nodes, given, sizes, 0))
    for seed in range(1, plan.seeds + 1):
        yield Draw(f"seed {seed}", random(nodes, given, known, seed))
    if plan.edges:
        yield Draw("zeros", each(nodes, given, known, _zeros), is_edge=True)
        yield Draw("extremes", each(nodes, given, known, _extremes), is_edge=True)
        if any(_is_scalable(leaf) for at, leaf in enumerate(given) if at not in ruled):
            for label, change in _CHANGES.items():
                values = random(nodes, given, known, 7, change)
                yield Draw(label, values, must_be_finite=label != "small", is_edge=True)


def _describe(nodes: Sequence[fx.Node], sizes: Sizes) -> str:
    """Name each size by the first argument and axis that has it: `x[0]=7`."""
    places: dict[Any, str] = {}
    for node in nodes:
        fake = node.meta.get("val")
        axes = enumerate(fake.shape) if isinstance(fake, torch.Tensor) else [("", fake)]
        for axis, size in axes:
            if isinstance(size, torch.SymInt):
                place = f"{node.name}[{axis}]" if axis != "" else node.name
                places.setdefault(size.node.expr, place)
    return ", ".join(f"{places.get(symbol, symbol)}={size}" for symbol, size in sizes.items())


def _known(nodes: Sequence[fx.Node], given: Leaves) -> Sizes:
    """Return the dynamic sizes that the given inputs have."""
    known: Sizes = {}
    for expression, size in _symbolic(nodes, given):
        (free, *others) = sorted(expression.free_symbols, key=str)
        if not others and free not in known:
            solved = sympy.solve(expression - size, free)
            if solved:
                known[free] = int(solved[0])
    return known


def _symbolic(nodes: Sequence[fx.Node], given: Leaves) -> Iterator[tuple[Any, int]]:
    """Yield the expression of each dynamic size with its given value."""
    for node, leaf in zip(nodes, given, strict=True):
        fake = node.meta.get("val")
        if isinstance(fake, torch.Tensor):
            pairs = list(zip(fake.shape, leaf.shape, strict=True))
        else:
            pairs = [(fake, leaf)]
        for declared, size in pairs:
            if isinstance(declared, torch.SymInt) and declared.node.expr.free_symbols:
                yield declared.node.expr, size


def _others(ranges: dict[Any, Any], known: Sizes, count: int) -> Iterator[Sizes]:
    """Yield other sizes: the smallest allowed, then growing ones that differ from each other."""
    seen = [known]
    for number in range(count):
        sizes = {
            symbol: _within(ranges.get(symbol), size, number, place)
            for place, (symbol, size) in enumerate(known.items())
        }
        if sizes not in seen:
            seen.append(sizes)
            yield sizes


def _within(allowed: Any, size: int, number: int, place: int) -> int:
    least = max(1, _bound(allowed, "lower", 1))
    most = max(least, _bound(allowed, "upper", 1 << 30))
    if number == 0:
        return least
    if number == 2 and most <= _GROWTH * max(16, size):
        return most
    return min(most, size * number + 1 + place)


def _bound(allowed: Any, side: str, otherwise: int) -> int:
    bound = getattr(allowed, side, None)
    return int(bound) if isinstance(bound, int | sympy.Integer) else otherwise


def _random(
    ruled: Mapping[int, Rule],
    nodes: Sequence[fx.Node],
    given: Leaves,
    sizes: Sizes,
    seed: int,
    change: Callable[[torch.Tensor], torch.Tensor] | None = None,
) -> Callable[[int], Leaves]:
    def leaves(step: int) -> Leaves:
        generator = torch.Generator().manual_seed(1000 * seed + step)

        def make(like: torch.Tensor, shape: list[int]) -> torch.Tensor:
            values = drawn(like, shape, generator)
            return change(values) if change is not None and _is_scalable(like) else values

        return _each(ruled, nodes, given, sizes, make, seed)(step)

    return leaves


def _each(
    ruled: Mapping[int, Rule],
    nodes: Sequence[fx.Node],
    given: Leaves,
    sizes: Sizes,
    make: Callable[[torch.Tensor, list[int]], torch.Tensor],
    seed: int = 0,
) -> Callable[[int], Leaves]:
    def shape(place: int) -> list[int]:
        return [_size(s, sizes) for s in nodes[place].meta["val"].shape]

    def leaf(step: int, place: int, like: Any) -> Any:
        fake = nodes[place].meta.get("val")
        if not isinstance(fake, torch.Tensor):
            return _size(fake, sizes) if isinstance(fake, torch.SymInt) else like
        if place in ruled:
            generator = torch.Generator().manual_seed(1000 * seed + step)
            return ruled[place].draw(like, shape(place), generator, shape)
        return make(like, shape(place))

    return lambda step: [leaf(step, place, like) for place, like in enumerate(given)]


def _size(size: Any, sizes: Sizes) -> int:
    return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else int(size)


def _zeros(like: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return zeros, or for integers the smallest given value; for uint8 also the next one."""
    if like.is_floating_point() or like.is_complex() or like.dtype == torch.bool:
        return torch.zeros(shape, dtype=like.dtype)
    least = int(like.min()) if like.numel() else 0
    values = torch.full(shape, least, dtype=like.dtype)
    if like.dtype == torch.uint8 and like.numel() and int(like.max()) > least:
        # Pixels: all pixels of a constant image have the same rounding error, which does not
        # cancel in a mean. The error analysis assumes errors that differ.
        values += torch.randint(0, 2, shape, generator=torch.Generator().manual_seed(0)).byte()
    return values


def _extremes(like: torch.Tensor, shape: list[int]) -> torch.Tensor:
    """Return a pattern of both ends of the domain, zeros and tiny values."""
    count = int(torch.Size(shape).numel())
    if like.dtype == torch.bool:
        pattern = torch.tensor([True, False])
    elif like.numel() == 0:
        pattern = torch.zeros(1)
    elif like.is_floating_point() or like.is_complex():
        pattern = _far(like.real.double() if like.is_complex() else like.double())
    else:
        pattern = torch.stack([like.min(), like.max()])
    repeated = pattern.repeat(-(-count // pattern.numel()) if count else 0)[:count]
    # Not in a regular order, in which the rounding errors of a long sum do not cancel.
    repeated = repeated[torch.randperm(count, generator=torch.Generator().manual_seed(0))]
    return repeated.reshape(shape).to(like.dtype)


def _far(wide: torch.Tensor) -> torch.Tensor:
    if not wide.isfinite().all():
        return wide.flatten()
    far = _LARGE * spread_of(wide)
    pattern = [far, 0.0, 1e-6, -far, -0.0, -1e-6, 1.0]
    return torch.tensor([abs(p) for p in pattern] if float(wide.min()) >= 0 else pattern).double()


def _is_scalable(leaf: Any) -> bool:
    """Return whether a leaf is a tensor of finite floats, which may have other magnitudes."""
    if not isinstance(leaf, torch.Tensor) or not (leaf.is_floating_point() or leaf.is_complex()):
        return False
    return leaf.numel() > 0 and leaf.dtype.itemsize > 1 and not bool(leaf.isinf().any())


def _tiny(values: torch.Tensor) -> torch.Tensor:
    """Return the smallest normal numbers with the signs of the values, and zeros of both signs."""
    least = 4 * torch.finfo(values.dtype).smallest_normal
    return torch.where(values.abs() < values.abs().mean(), 0.0 * values, values.sgn() * least)


def _infinite(values: torch.Tensor) -> torch.Tensor:
    """Return the values with an infinity in every fifth place."""
    flat = values.flatten().clone()
    flat[::5] = flat[::5].sgn() * torch.inf if not values.is_complex() else torch.inf
    return flat.nan_to_num(0.0, torch.inf, -torch.inf).reshape(values.shape)


# Changes of random values; torch must accept them with finite results.
_CHANGES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "small": lambda values: values * 1e-3,
    "large": lambda values: values * 1e3,
    "negative": lambda values: -values.abs() if not values.is_complex() else -values,
    "tiny": _tiny,
    "infinite": _infinite,
}
