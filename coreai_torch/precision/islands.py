"""Find the nodes that must stay in float32, by measuring ranges and errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from . import running
from .defaults import op_name, tensors
from .recast import is_full, recast

_MARGIN = 0.5  # of the largest half-precision number: inputs other than the samples may be larger
_ROUNDS = 12
_TRIALS = 32  # when islands are removed again

Values = dict[str, tuple[torch.Tensor, ...]]


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
    ) -> None:
        self._program, self._samples = program, samples
        self._kept, self._dtype, self._limit = dict(kept), dtype, limit
        self._nodes: dict[str, fx.Node] = {n.name: n for n in program.graph.nodes}
        self._expected = [running.run(program, leaves) for leaves in samples]
        self._ranges = self._measured()

    def _measured(self) -> dict[str, running.Range]:
        found: dict[str, running.Range] = {}
        for values in self._expected:
            for name, new in running.ranges(values).items():
                old = found.get(name, new)
                found[name] = running.Range(
                    max(old.largest, new.largest), min(old.smallest, new.smallest)
                )
        return found

    def run(self) -> Found:
        """Return the islands that bring the error below the limit."""
        islands: dict[str, Island] = {}
        before, _ = self._error(islands)
        error, worst = before, 0
        if error > self._limit:
            islands = self._overflowing()
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

    def _error(self, islands: Mapping[str, Island]) -> tuple[float, int]:
        """Return the largest error of the outputs, and the sample that has it."""
        errors = [
            running.error(expected["output"], self._simulated(islands, leaves)["output"])
            for expected, leaves in zip(self._expected, self._samples, strict=True)
            if "output" in expected
        ]
        worst = max(range(len(errors)), key=errors.__getitem__, default=0)
        return (errors[worst] if errors else 0.0), worst

    def _simulated(self, islands: Mapping[str, Island], leaves: Sequence[Any]) -> Values:
        """Run in half precision; nodes that torch cannot run become part of the defaults."""
        while True:
            program = recast(self._program, {*self._kept, *islands}, self._dtype)
            try:
                return running.run(program, leaves, self._dtype)
            except running.HalfKernelMissing as missing:
                if missing.node in self._kept or missing.node not in self._nodes:
                    raise (missing.__cause__ or missing) from None
                self._kept[missing.node] = "torch has no half-precision kernel"

    @property
    def kept(self) -> dict[str, str]:
        """The nodes that stay in float32 in any case, those found while running included."""
        return self._kept

    def _overflowing(self) -> dict[str, Island]:
        """Return the nodes with values beyond half precision, and the nodes that read them."""
        most = torch.finfo(self._dtype).max * _MARGIN
        found = {}
        for name, range_ in self._ranges.items():
            node = self._nodes.get(name)
            if node is None or node.op != "call_function" or range_.largest <= most:
                continue
            reason = f"values up to {range_.largest:.3g} overflow"
            found.update(self._island(node, reason))
            for user in node.users:
                found.update(self._island(user, f"reads {reason}"))
        return found

    def _blamed(self, islands: Mapping[str, Island], sample: int, count: int) -> dict[str, Island]:
        """Return the nodes that add the most error, and those that read them."""
        expected = self._expected[sample]
        actual = self._simulated(islands, self._samples[sample])
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
            found.update(self._island(self._nodes[name], reason))
            for user in self._nodes[name].users:
                found.update(self._island(user, f"reads {name}"))
        return {name: island for name, island in found.items() if name not in islands}

    def _input_error(self, name: str, errors: Mapping[str, float]) -> float:
        return max(
            (errors.get(n.name, 0.0) for n in self._nodes[name].all_input_nodes), default=0.0
        )

    def _island(self, node: fx.Node, reason: str) -> dict[str, Island]:
        if node.op != "call_function" or node.name in self._kept:
            return {}
        if not any(is_full(value) for value in tensors(node)):
            return {}
        largest = self._ranges.get(node.name, running.Range(0.0, 0.0)).largest
        return {node.name: Island(node.name, op_name(node), reason, largest)}

    def _shrunk(self, islands: dict[str, Island], error: float) -> tuple[dict[str, Island], float]:
        """Remove islands in halves, then one by one, as long as the error stays below the limit."""
        size, trials = len(islands), 0
        while size >= 1 and trials < _TRIALS:
            for start in range(0, len(islands), size):
                names = list(islands)[start : start + size]
                fewer = {n: i for n, i in islands.items() if n not in names}
                trials += 1
                found, _ = self._error(fewer)
                if found <= self._limit:
                    islands, error = fewer, found
                    break
                if trials >= _TRIALS:
                    break
            else:
                size //= 2
                continue
            size = min(size, max(len(islands), 1))
            if not islands:
                break
        return islands, error


def _order(growth: float) -> float:
    """Return a key that puts infinite and undefined growth first."""
    return float("inf") if growth != growth else growth  # NaN: inf - inf
