"""Measure how far a correct program may be from torch, for each element of each result.

The graph runs once as it is and several times with random rounding errors: after each op, every
element of its result is changed by as much as the rounding model allows a correct implementation
to differ. The largest change of an output element over these runs is its error scale. It depends
only on the ops, dtypes and values on the path to this element: an element that is moved but never
computed has the scale 0, and large values elsewhere in the tensor do not matter. Ops that jump,
such as `round` or `topk`, run with their operands at both ends of their error, so that each element
that may jump does so in one of the runs.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..ir.types import narrow
from ..torch_compat import HigherOrderOperator, pytree
from . import branch_cuts
from .equal_terms import equal_terms_error
from .noise import Noise, map_leaves, rounded, sum_error
from .rounding import Kind, is_float, kind_of, least, order_is_arbitrary, unit, units

FACTOR = 8.0  # an element may differ by so many times its error scale
ENOUGH = 8  # noisy runs from which on the largest change of a single element is reliable
_CANDIDATES = 16  # runs of an op that returns positions, to find ties
_NEIGHBOURS = 16
_FEW_ELEMENTS = 256  # none of them is unchanged by chance
_MOST = 0.75  # share of neighbours


@dataclass(frozen=True)
class Lanes:
    """The value of a node in the run without errors, and in the noisy runs if it differs."""

    base: Any
    noisy: tuple[Any, ...] | None = None

    def __getitem__(self, lane: int) -> Any:
        return self.base if self.noisy is None else self.noisy[lane]


@dataclass(frozen=True)
class ErrorScale:
    """The error scale of each element of one result, in torch's run of the graph.

    For integers and booleans the scale is 1 where the noisy runs disagree, else 0.
    """

    value: torch.Tensor
    scale: torch.Tensor
    is_computed: bool = True  # whether some elements are more than moved


class Analysis:
    """Run a graph with and without rounding errors; `narrows=False` gives 64-bit numbers none."""

    def __init__(
        self,
        module: fx.GraphModule,
        runs: int = ENOUGH,
        seed: int = 0,
        device: str = "cpu",
        *,
        narrows: bool = True,
    ) -> None:
        self._module, self._runs, self._device = module, runs, torch.device(device)
        self._noise = Noise(seed, device, narrows)
        self._released = _last_uses(module.graph)

    def run(
        self,
        feed: Mapping[fx.Node, Any],
        wanted: Iterable[fx.Node],
        keep: Callable[[fx.Node, Lanes], Any] = lambda node, lanes: lanes,
    ) -> dict[fx.Node, Any]:
        """Return the lanes of the wanted nodes, or what `keep` makes of them.

        `feed` has the values of the placeholders. A value that has errors already, such as a state
        after some calls, is fed as `Lanes`.
        """
        wanted, kept = set(wanted), {}
        env: dict[fx.Node, Lanes] = {}
        with torch.no_grad():
            for node in self._module.graph.nodes:
                if node.op == "output":
                    break
                env[node] = self._value(node, env, feed)
                if node in wanted:
                    kept[node] = keep(node, env[node])
                for done in self._released.get(node, ()):
                    del env[done]
        return kept

    def _value(
        self, node: fx.Node, env: Mapping[fx.Node, Lanes], feed: Mapping[fx.Node, Any]
    ) -> Lanes:
        if node.op == "placeholder":
            given = feed[node]
            return given if isinstance(given, Lanes) else self._narrowed(self._placed(given))
        if node.op == "get_attr":
            return self._narrowed(self._placed(operator.attrgetter(str(node.target))(self._module)))
        return self._call(node, env)

    def _placed(self, value: Any) -> Any:
        return value.to(self._device) if isinstance(value, torch.Tensor) else value

    def _narrowed(self, given: Any) -> Lanes:
        """Round 64-bit values, which the program stores in 32 bits."""
        if is_float(given) and given.dtype in (torch.float64, torch.complex128):
            return Lanes(given, tuple(self._noise.relative(given, 1.0) for _ in range(self._runs)))
        return Lanes(given)

    def _call(self, node: fx.Node, env: Mapping[fx.Node, Lanes]) -> Lanes:
        lanes = list(dict.fromkeys(node.all_input_nodes))
        exact = all(env[n].noisy is None for n in lanes)
        lanes_of = range(-1, self._runs)
        call = _Call(node, [self._arguments(node, env, lane) for lane in lanes_of])
        base = call.evaluate(-1)
        if not _has_tensor(base) and exact:
            return Lanes(base)
        args, kwargs = call.arguments(-1)
        kind = kind_of(node.target, args, kwargs, base)
        if kind is Kind.ORDER:
            return self._order(call, base, [env[n] for n in lanes])
        if exact and (kind in (Kind.EXACT, Kind.STEP) or not _has_float(base)):
            return Lanes(base)
        if kind is Kind.STEP:
            return self._step(node, call, base, env)
        rounded_lanes = self._rounded(kind, call, base, exact)
        if not exact and branch_cuts.has_cut(node.target, base):
            return self._at_cut(node, rounded_lanes, env)
        return rounded_lanes

    def _at_cut(self, node: fx.Node, lanes: Lanes, env: Mapping[fx.Node, Lanes]) -> Lanes:
        """Let two lanes take the results on both sides of a branch cut that others may cross."""
        operand = node.all_input_nodes[0]
        base, noisy = lanes.base, lanes.noisy
        if noisy is None or len(noisy) < 2 or env[operand].noisy is None:
            return lanes

        def moved(value: torch.Tensor) -> Any:
            args = self._arguments(node, {**env, operand: Lanes(value)}, -1)
            return _Call(node, [args]).evaluate(-1)

        reach = FACTOR * error_scale(env[operand]).scale
        sides = branch_cuts.ends(moved, env[operand].base, reach, base)
        taken = [torch.where(s == base, n, s) for s, n in zip(sides, noisy, strict=False)]
        return Lanes(base, (*taken, *noisy[2:]))

    def _rounded(self, kind: Kind, call: _Call, base: Any, exact: bool) -> Lanes:
        target = call.node.target
        error = None
        if kind is Kind.SUM and is_float(base):
            args, kwargs = call.arguments(-1)
            try:
                error = sum_error(target, args, kwargs, base)
            except (RuntimeError, TypeError):
                kind = Kind.GENERAL
        before, after = (0.0, 1.0)
        if kind is Kind.GENERAL:
            before, after = units(target, call.arguments(-1)[0], base)
        equal = equal_terms_error(target, call.arguments(-1)[0]) if before else None
        noisy = []
        for lane in range(self._runs):
            if exact and not before and kind is not Kind.BODY:
                value = base
            else:
                value = self._evaluated(call, lane, base, before, equal)
            noisy.append(rounded(kind, target, value, self._noise, error, after))
        return Lanes(base, tuple(noisy))

    def _evaluated(
        self, call: _Call, lane: int, base: Any, before: float, equal: torch.Tensor | None
    ) -> Any:
        """Run the op in one lane, with operands changed by `before` units."""
        first = next((a for a in call.arguments(lane)[0] if is_float(a)), None)

        def change(value: Any) -> Any:
            if equal is not None and value is first:
                value = self._noise.rows(value, equal)
            if before:  # the functions of flex_attention run in vmap, which rejects random numbers
                return self._noise.relative(value, before)
            return _NoisyBody(value, self._noise) if isinstance(value, fx.GraphModule) else value

        try:
            value = call.evaluate(lane, change)
        except (RuntimeError, IndexError):  # a noisy index out of bounds
            value = call.with_exact_integers(lane).evaluate(-1, change)
        return _repaired(value, base, has_domain=before > 0)

    def _step(self, node: fx.Node, call: _Call, base: Any, env: Mapping[fx.Node, Lanes]) -> Lanes:
        """Run an op that jumps with its operands at the ends of their errors, apart.

        Integers keep the values of their lane: a permutation that one lane sorted by differs from
        that of the run without errors, and `perm // 2` must follow it. The same holds for floats
        that are whole numbers in all lanes: they have jumped already, and `floor(x).long()` must
        not jump further.
        """
        inputs = list(dict.fromkeys(node.all_input_nodes))
        operands = [n for n in inputs if is_float(env[n].base) and not _is_whole(env[n])]
        scales = {n: FACTOR * error_scale(env[n]).scale for n in operands}
        noisy = []
        for lane in range(self._runs):
            moved = {n: Lanes(env[n][lane]) for n in inputs}
            for place, operand in enumerate(operands):
                value, scale = env[operand].base, scales[operand]
                signs = 1.0 if lane == 0 else -1.0 if lane == 1 else self._noise.signs_like(scale)
                moved[operand] = Lanes(_shifted(value, scale * signs * (-1.0) ** place))
            value = _Call(node, [self._arguments(node, moved, -1)]).evaluate_or(base)
            noisy.append(_repaired(value, base))
        return Lanes(base, tuple(noisy))

    def _order(self, call: _Call, base: Any, inputs: list[Lanes]) -> Lanes:
        """Run an op that returns positions with its scores anywhere within their errors."""
        args, kwargs = call.arguments(-1)
        scores = inputs[0]
        arbitrary = order_is_arbitrary(call.node.target, args, kwargs)
        if scores.noisy is None and not arbitrary:
            return Lanes(base)
        candidates = [
            call.node.target(self._anywhere(scores, arbitrary), *args[1:], **kwargs)
            for _ in range(_CANDIDATES)
        ]
        chosen = _cover(base, candidates, self._runs)
        noisy = []
        for lane in range(self._runs):
            own = base if scores.noisy is None else call.evaluate_or(base, lane)
            noisy.append(_combined(base, own, chosen[lane]))
        return Lanes(base, tuple(noisy))

    def _anywhere(self, scores: Lanes, arbitrary: bool) -> torch.Tensor:
        """Return scores within their errors; equal ones differ if their order is arbitrary."""
        wide = scores.base.double()
        reach = FACTOR * error_scale(scores).scale.double()
        if arbitrary:
            reach = reach + 1e-12 * wide.abs().nan_to_num(0.0, 0.0, 0.0) + 1e-60
        return _shifted(wide, reach * self._noise.like(wide))

    def _arguments(self, node: fx.Node, env: Mapping[fx.Node, Lanes], lane: int) -> tuple[Any, Any]:
        def value(n: fx.Node) -> Any:
            return env[n].base if lane < 0 else env[n][lane]

        args, kwargs = fx.node.map_arg((node.args, node.kwargs), value)
        if "device" in kwargs:
            kwargs = {**kwargs, "device": self._device}
        return tuple(args), dict(kwargs)


def _is_whole(lanes: Lanes) -> bool:
    """Return whether the values of all lanes are whole numbers, and some lanes differ."""
    if lanes.noisy is None or lanes.base.is_complex() or lanes.base.itemsize == 1:
        return False
    return all(bool((value == value.trunc()).all()) for value in (lanes.base, *lanes.noisy))


class _Call:
    """One op with its arguments in each lane; lane -1 is the run without errors."""

    def __init__(self, node: fx.Node, arguments: list[tuple[Any, Any]]) -> None:
        self.node, self._arguments = node, arguments

    def arguments(self, lane: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return self._arguments[lane + 1]

    def evaluate(self, lane: int, change: Any = None) -> Any:
        args, kwargs = self.arguments(lane)
        if change is not None:
            args, kwargs = map_leaves((args, kwargs), change)
        try:
            return self.node.target(*args, **kwargs)
        except RuntimeError as error:
            if "is_contiguous" not in str(error):
                raise
            # Kernels of torch 2.11 for half precision on an Intel CPU reject the layout that
            # another kernel returned: "Expected X.is_contiguous(memory_format) to be true".
            args, kwargs = map_leaves((args, kwargs), _contiguous)
            return self.node.target(*args, **kwargs)

    def with_exact_integers(self, lane: int) -> _Call:
        """Return the call with the floats of a lane and the integers of the run without errors."""
        flat, spec = pytree.tree_flatten(self.arguments(-1))
        noisy = pytree.tree_leaves(self.arguments(lane))
        mixed = [n if is_float(n) else b for b, n in zip(flat, noisy, strict=True)]
        return _Call(self.node, [pytree.tree_unflatten(mixed, spec)])

    def evaluate_or(self, otherwise: Any, lane: int = -1) -> Any:
        try:
            return self.evaluate(lane)
        except RuntimeError:  # a size that depends on the values
            return otherwise


def _contiguous(value: Any) -> Any:
    return value.contiguous() if isinstance(value, torch.Tensor) else value


class _NoisyBody(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    """A branch or loop body that runs with rounding errors."""

    def __init__(self, module: fx.GraphModule, noise: Noise) -> None:
        super().__init__(module)
        self._noise = noise

    def __call__(self, *args: Any) -> Any:
        return self.run(*args)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if isinstance(target, HigherOrderOperator):
            args = tuple(
                _NoisyBody(a, self._noise) if isinstance(a, fx.GraphModule) else a for a in args
            )
        result = super().call_function(target, args, kwargs)
        kind = kind_of(target, args, kwargs, result)
        error = None
        if kind is Kind.SUM and is_float(result):
            error = sum_error(target, args, kwargs, result)
        before, after = units(target, args, result) if kind is Kind.GENERAL else (0.0, 1.0)
        return rounded(kind, target, result, self._noise, error, before + after)


def error_scale(lanes: Lanes) -> ErrorScale:
    """Return the largest change of each element over the noisy runs."""
    base = lanes.base
    if lanes.noisy is None:
        return ErrorScale(base, torch.zeros(base.shape, device=base.device), is_computed=False)
    if not is_float(base):
        differs = torch.zeros(base.shape, dtype=torch.bool, device=base.device)
        for other in lanes.noisy:
            differs |= other != base
        return ErrorScale(base, differs.float())
    wide = torch.float64 if base.dtype in (torch.float64, torch.complex128) else torch.float32
    center = _widened(base, wide)
    scale = torch.zeros(base.shape, dtype=wide, device=base.device)
    for other in lanes.noisy:
        value = _widened(other, wide)
        change = (value - center).abs()
        change = torch.where(value == center, 0.0, change).nan_to_num(torch.inf, torch.inf)
        scale = torch.maximum(scale, torch.where(center.isnan(), 0.0, change))
    if len(lanes.noisy) < ENOUGH:
        scale = torch.maximum(scale, _neighbours(scale))
    elif base.numel() > _FEW_ELEMENTS:
        one = unit(narrow(base.dtype)) * center.abs().nan_to_num(0.0, 0.0, 0.0)
        scale = torch.where(_unchanged_by_chance(scale), one, scale)
    return ErrorScale(base, scale)


def allowed_error(scale: ErrorScale, dtype: torch.dtype) -> torch.Tensor:
    """Return the error that each element may have; 0 for integers and booleans.

    A computed zero may be a subnormal number and the other way round: `igamma(2e-3, 1e-38)` is
    0 in torch and 4e-43 in the program.
    """
    if not (dtype.is_floating_point or dtype.is_complex):
        return torch.zeros_like(scale.scale)
    floor = FACTOR * least(dtype) if scale.is_computed else 0.0
    return FACTOR * scale.scale.double() + floor


def _unchanged_by_chance(scale: torch.Tensor) -> torch.Tensor:
    """Return which elements have the scale 0 although almost all around them have not.

    The noise of one op is up to a unit, so that rounding removes half of it. After `(x + 4) / 4`,
    one element of 3,000 is unchanged in all of 8 runs: without this, the log-mel spectrogram of
    30 s, with 384,000 elements, must be equal to torch's in 120 of them.
    """
    changed = (scale > 0).float().flatten()[None]
    around = torch.nn.functional.avg_pool1d(changed, 31, 1, 15, count_include_pad=False)
    return ((scale == 0).flatten() & (around[0] > _MOST)).view(scale.shape)


def _neighbours(scale: torch.Tensor) -> torch.Tensor:
    """Return the median over the neighbours of each element along the longest axis.

    All elements of a small tensor are neighbours.
    A few noisy runs may all leave one element almost unchanged by chance.
    """
    if not scale.numel():
        return scale
    if scale.dim() == 0 or max(scale.shape) < _NEIGHBOURS:
        return scale.median().expand(scale.shape)
    axis = max(range(scale.dim()), key=lambda a: scale.shape[a])
    moved = scale.movedim(axis, -1)
    length = moved.shape[-1]
    parts = [
        part.median(-1, keepdim=True).values.expand(part.shape)
        for part in moved.split(max(_NEIGHBOURS, -(-length // (length // _NEIGHBOURS))), -1)
    ]
    return torch.cat(parts, -1).movedim(-1, axis)


def _widened(value: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    if value.is_complex():
        return value.to(torch.complex128 if dtype == torch.float64 else torch.complex64)
    return value.to(dtype)


def _shifted(value: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    finite = by.nan_to_num(0.0, 0.0, 0.0)
    if value.is_complex():
        return (value + finite).to(value.dtype)
    return (value.to(finite.dtype) + finite).to(value.dtype)


def _repaired(value: Any, base: Any, has_domain: bool = True) -> Any:
    """Replace results of another shape, and NaN of noisy runs only, by the value without errors.

    Only ops with a domain return NaN next to its end.
    """
    if isinstance(value, tuple | list) and isinstance(base, tuple | list):
        return type(base)(_repaired(v, b, has_domain) for v, b in zip(value, base, strict=True))
    if not isinstance(base, torch.Tensor) or not isinstance(value, torch.Tensor):
        return value
    if value.shape != base.shape:
        return base
    if has_domain and is_float(value) and value.isnan().any():
        return torch.where(value.isnan(), base, value)
    return value


def _cover(base: Any, candidates: list[Any], count: int) -> list[Any]:
    """Select results such that each position that differs in a candidate differs in one."""
    differs = [_differs(c, base) for c in candidates]
    covered = torch.zeros_like(differs[0])
    chosen: list[Any] = []
    for _ in range(count):
        best = max(range(len(candidates)), key=lambda i: int((differs[i] & ~covered).sum()))
        gain = int((differs[best] & ~covered).sum())
        if not gain:
            chosen += [candidates[i % len(candidates)] for i in range(count - len(chosen))]
            break
        covered = covered | differs[best]
        chosen.append(candidates[best])
    return chosen


def _differs(candidate: Any, base: Any) -> torch.Tensor:
    """Return which positions differ; the values in a candidate are floats."""
    if not isinstance(base, tuple | list):
        candidate, base = [candidate], [base]
    flat = []
    for some, other in zip(candidate, base, strict=True):
        if isinstance(some, torch.Tensor) and not is_float(some):
            same_shape = some.shape == other.shape
            flat.append((some != other if same_shape else other != other).flatten())
    return torch.cat(flat) if flat else torch.zeros(0, dtype=torch.bool)


def _combined(base: Any, own: Any, candidate: Any) -> Any:
    """Take the values of a lane and the positions of a candidate."""
    if isinstance(base, tuple | list):
        parts = zip(base, own, candidate, strict=True)
        return type(base)(_combined(b, o, c) for b, o, c in parts)
    value = own if is_float(candidate) else candidate
    if not isinstance(value, torch.Tensor) or value.shape != base.shape:
        return base
    return value.to(base.dtype)


def _has_tensor(value: Any) -> bool:
    parts = value if isinstance(value, tuple | list) else [value]
    return any(isinstance(p, torch.Tensor) for p in parts)


def _has_float(value: Any) -> bool:
    parts = value if isinstance(value, tuple | list) else [value]
    return any(is_float(p) for p in parts)


def _last_uses(graph: fx.Graph) -> dict[fx.Node, list[fx.Node]]:
    """Map each node to the nodes that no later node uses."""
    last: dict[fx.Node, fx.Node] = {}
    for node in graph.nodes:
        last[node] = node
        for used in node.all_input_nodes:
            last[used] = node
    released: dict[fx.Node, list[fx.Node]] = {}
    for node, user in last.items():
        released.setdefault(user, []).append(node)
    return released
