"""Find the nodes that must stay in float32, by measuring ranges and errors."""

from __future__ import annotations

import math
import operator
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..errors import ConversionError, module_path
from . import running
from .defaults import masks
from .externalized import together
from .nodes import MOVES, base, is_float, op_name, tensors
from .recast import WeightCasts, is_full


def judged(program: torch.export.ExportedProgram) -> list[str]:
    """Return the nodes whose error is measured besides that of the outputs."""
    found: dict[str, None] = {}
    for node in program.graph.find_nodes(op="output")[0].all_input_nodes:
        sources = [node] if is_float(node) else list(_float_sources(node))
        for source in sources:
            if not is_float(node):
                found[source.name] = None
            found.update((part.name, None) for part in _parts(source))
    return list(found)


def _parts(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the operands of the concatenation that a value is, through views and copies."""
    while base(node) in MOVES:
        node = node.all_input_nodes[0]
    if base(node) not in ("cat", "stack"):
        return
    for part in node.all_input_nodes:
        if is_float(part):
            yield part
            yield from _parts(part)


def _float_sources(output: fx.Node) -> Iterator[fx.Node]:
    """Yield the floats that an integer or bool is computed from."""
    seen, open_ = {output}, [output]
    while open_:
        for given in open_.pop().all_input_nodes:
            if given in seen:
                continue
            seen.add(given)
            if is_float(given):
                yield given
            else:
                open_.append(given)


_MARGIN = 0.5  # of the largest half-precision number: inputs other than the samples may be larger
_MASK = 1e30  # scores from which on they only mean the first or the last place
_ROUNDS = 12
_TRIALS = 32  # when islands are removed again


@dataclass(frozen=True)
class Island:
    """A node that stays in float32, and why."""

    node: str
    op: str
    reason: str
    largest: float  # the largest magnitude of its values


@dataclass(frozen=True)
class Found:
    """The islands, and the error of the outputs without and with them."""

    islands: dict[str, Island]
    error_before: float
    error_after: float


class Search:
    """Measures a program on samples, and grows and shrinks the set of islands."""

    def __init__(
        self,
        program: torch.export.ExportedProgram,
        samples: Sequence[Sequence[Any]],
        kept: Mapping[str, str],
        dtype: torch.dtype,
        limit: float,
        weights: WeightCasts | None = None,
        *,
        half_ports: bool = False,
    ) -> None:
        self._weights = WeightCasts(dtype) if weights is None else weights
        self.has_half_ports = half_ports
        self._program, self._samples = program, samples
        self._kept, self._dtype, self._limit = dict(kept), dtype, limit
        self.nodes: dict[str, fx.Node] = {n.name: n for n in program.graph.nodes}
        self._together, self.masks = together(program.graph), masks(program, dtype)
        self._expected: list[running.Values] = []  # of each sample, the values to judge
        self._choices: list[running.Choices] = []
        self._ranges: dict[str, running.Range] = {}
        self._judged = ["output", *judged(program)]
        for leaves in samples:
            self._measure(leaves)

    def _measure(self, leaves: Sequence[Any]) -> None:
        """Run one sample in float32; all its values at once may need gigabytes."""
        values, choices = running.run_with_choices(self._program, leaves)
        scores = _scores(self.nodes[name] for name in choices)
        self._judged = list(dict.fromkeys([*self._judged, *scores]))
        self._expected.append({name: values[name] for name in self._judged if name in values})
        self._choices.append(choices)
        for name, new in running.ranges(values).items():
            old = self._ranges.get(name, new)
            self._ranges[name] = running.Range(
                max(old.largest, new.largest), min(old.smallest, new.smallest)
            )

    def check_outputs(self) -> None:
        """Raise if a sample has no finite output in float32, so that an error means nothing."""
        for place, values in enumerate(self._expected):
            outputs = [v for v in values.get("output", ()) if v.numel()]
            if outputs and not any(bool(torch.isfinite(v).any()) for v in outputs):
                raise ConversionError(
                    f"the model in float32 returns no finite number for input {place}\n"
                    "  try   pass typical inputs as calibration"
                )

    def check_ports(self) -> None:
        """Raise if an input or output has numbers that a half-precision port cannot have."""
        signature = self._program.graph_signature
        info, word = torch.finfo(self._dtype), str(self._dtype).removeprefix("torch.")
        ports = [("input", name) for name in signature.user_inputs]
        ports += [("output", name) for name in signature.user_outputs]
        for kind, name in ports:
            largest = self._ranges.get(str(name), running.Range(0.0, 0.0)).largest
            if largest > info.max:
                bound = f"the largest {word} is {info.max:.5g}"
            elif 0 < largest * self._limit < info.tiny * info.eps:
                bound = f"the numbers of {word} are {info.tiny * info.eps:.1g} apart there"
            else:
                continue
            raise ConversionError(
                f"{kind} {name!r} has values up to {largest:.3g}, and {bound}\n"
                f"  try   leave out half_ports, or scale the {kind}"
            )

    def run(self) -> Found:
        """Return the islands that bring the error below the limit."""
        islands: dict[str, Island] = {}
        before, _ = self._error(islands)
        error, worst = before, 0
        if error > self._limit:
            islands = self._predicted()
            error, worst = self._error(islands)
        for round_ in range(_ROUNDS):
            if error <= self._limit:
                break
            added = self._blamed(islands, worst, 2**round_)
            if not added:
                break
            islands.update(added)
            error, worst = self._error(islands)
        if error <= self._limit:
            islands, error = self._shrunk(islands, error)
        return Found(islands, before, error)

    def measure(self, islands: dict[str, Island]) -> Found:
        """Return the error without and with islands that the user chose."""
        before, _ = self._error({})
        after, _ = self._error(islands)
        return Found(islands, before, after)

    def _error(self, islands: Mapping[str, Island], *, stop: float = math.inf) -> tuple[float, int]:
        """Return the largest error of the outputs, and the sample that has it.

        The samples after one with an error above `stop` are not run.
        """
        worst, place = 0.0, 0
        for index, expected in enumerate(self._expected):
            if not expected:
                continue
            actual = self._simulated(islands, index, only=expected)
            error = _largest_error(expected, actual)
            if error > worst:
                worst, place = error, index
            if error > stop:
                break
        return worst, place

    def _simulated(
        self, islands: Mapping[str, Island], sample: int, *, only: Collection[str] = ()
    ) -> running.Values:
        """Run in half precision, with the positions that float32 chooses.

        Nearly equal scores change their order in any other precision: `topk` is judged by its
        scores, and the rest of the program by equal choices. Nodes that torch cannot run become
        part of the defaults.
        """
        leaves, choices = self._samples[sample], self._choices[sample]
        if self.has_half_ports:
            leaves = [v.to(self._dtype).float() if is_full(v) else v for v in leaves]
        while True:
            kept = {*self._kept, *islands}
            half = running.HalfPrecision(kept, self._weights, choices, self.masks)
            try:
                return running.run(self._program, leaves, half, only=only)
            except running.HalfKernelMissing as missing:
                if missing.node in self._kept or missing.node not in self.nodes:
                    raise (missing.__cause__ or missing) from None
                self._kept[missing.node] = "torch has no half-precision kernel"

    @property
    def kept(self) -> dict[str, str]:
        """The nodes that stay in float32 in any case, those found while running included."""
        return self._kept

    def _predicted(self) -> dict[str, Island]:
        """Return the nodes with values outside of half precision, and the nodes that read them."""
        limits = torch.finfo(self._dtype)
        found = {}
        for name, range_ in self._ranges.items():
            node = self.nodes.get(name)
            if node is None or node.op == "output":
                continue
            if range_.largest > limits.max * (_MARGIN if node.op == "call_function" else 1):
                reason = f"values up to {range_.largest:.3g} overflow"
            elif 0 < range_.largest < limits.smallest_normal:
                reason = f"values up to {range_.largest:.3g} underflow"
            else:
                continue
            found.update(self.island(node, reason))
            for user in node.users:
                found.update(self.island(user, f"reads {reason}"))
        return found

    def known(self, islands: Mapping[str, Island]) -> dict[str, Island]:
        """Return those islands of another program that this one has too."""
        return {
            name: island
            for name, island in islands.items()
            if name not in self._kept and name in self.nodes
            if op_name(self.nodes[name]) == island.op
        }

    def _blamed(self, islands: Mapping[str, Island], sample: int, count: int) -> dict[str, Island]:
        """Return the nodes that add the most error, and those that read them."""
        expected = running.run(self._program, self._samples[sample])
        actual = self._simulated(islands, sample)
        errors = {
            name: running.error(want, actual[name])
            for name, want in expected.items()
            if name in actual and name != "output"
        }
        grown = {
            name: error - self._input_error(name, errors)
            for name, error in errors.items()
            if name not in islands and name not in self._kept
        }
        ranked = sorted(grown, key=lambda name: -_order(grown[name]))
        found: dict[str, Island] = {}
        for name in ranked[:count]:
            reason = f"adds a relative error of {errors[name]:.2g}"
            found.update(self.island(self.nodes[name], reason))
            for user in self.nodes[name].users:
                found.update(self.island(user, f"reads {name}"))
        return {name: island for name, island in found.items() if name not in islands}

    def blame(self, islands: Mapping[str, Island]) -> str:
        """Return the op that adds the most error, and the range of its values."""
        _, worst = self._error(islands)
        added = self._blamed(islands, worst, 1)
        if not added:
            return "no op adds it: the inputs or outputs lose it in half precision"
        island = next(iter(added.values()))
        place = module_path(self.nodes[island.node])
        inside = f" in {place}" if place else ""
        values = f"values up to {island.largest:.3g}"
        return f"{island.node} = {island.op}{inside} {island.reason}, {values}"

    def _input_error(self, name: str, errors: Mapping[str, float]) -> float:
        inputs = _computing(self.nodes[name]).all_input_nodes
        return max((errors.get(n.name, 0.0) for n in inputs), default=0.0)

    def island(self, node: fx.Node, reason: str) -> dict[str, Island]:
        """Return the island of a node; all nodes of an externalized module are one island."""
        found, node = {}, _computing(node)
        for name in self._together.get(node.name, [node.name]):
            each = self.nodes[name]
            if each.op != "call_function" or name in self._kept:
                continue
            if any(is_full(value) for value in tensors(each)):
                largest = self._ranges.get(name, running.Range(0.0, 0.0)).largest
                why = reason if each is node else f"in a module with {node.name}"
                found[name] = Island(name, op_name(each), why, largest)
        return found

    def _shrunk(self, islands: dict[str, Island], error: float) -> tuple[dict[str, Island], float]:
        """Remove islands in halves, then one by one, as long as the error stays below the limit."""
        parts = self._parts(islands)
        size, trials = len(parts), 0
        while size >= 1 and parts:
            start = 0
            while start < len(parts) and trials < _TRIALS:
                fewer = [*parts[:start], *parts[start + size :]]
                trials += 1
                some = {n: islands[n] for part in fewer for n in part}
                found, _ = self._error(some, stop=self._limit)
                if found <= self._limit:
                    parts, error = fewer, found
                else:
                    start += size
            size = min(size // 2, len(parts))
        return {n: islands[n] for part in parts for n in part}, error

    def _parts(self, islands: Mapping[str, Island]) -> list[list[str]]:
        """Return the islands in groups that stay together, those of a module in one."""
        found: dict[str, list[str]] = {}
        for name in islands:
            found.setdefault(self._together.get(name, [name])[0], []).append(name)
        return list(found.values())


def _computing(node: fx.Node) -> fx.Node:
    """Return the node that computes a value: an element of a tuple has its dtype from the tuple."""
    return node.all_input_nodes[0] if node.target is operator.getitem else node


def _scores(choices: Iterable[fx.Node]) -> list[str]:
    """Return the names of the values that nodes choose from."""
    return list({node.name: None for choice in choices for node in choice.all_input_nodes})


def _largest_error(expected: running.Values, actual: running.Values) -> float:
    """Return the largest error of the outputs, and of scores other than those of masks."""
    errors = [0.0]
    for name, want in expected.items():
        got = actual[name]
        if name != "output":
            masks = [value.abs() >= _MASK for value in want]
            want = tuple(v.masked_fill(m, 0) for v, m in zip(want, masks, strict=True))
            got = tuple(v.masked_fill(m, 0) for v, m in zip(got, masks, strict=True))
        errors.append(running.error(want, got))
    return max(errors)


def _order(growth: float) -> float:
    """Return a key that puts infinite and undefined growth first."""
    return float("inf") if growth != growth else growth  # NaN: inf - inf
