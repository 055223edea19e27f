"""Choose where to cut a captured program: equal weights, few tensors across each cut."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import torch
from torch import fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..capture.io_plan import IOPlan
from ..errors import ConversionError
from ..ir.types import narrow
from ..passes.externalize.cut import is_number
from ..torch_compat import aten

_CANDIDATES = 400  # positions that are compared; their pairs take the time
_PASSED = torch.Tensor | torch.SymInt  # what a part can return; not the tuple of several results
_PER_TENSOR = 0.02  # a tensor across a cut counts as much as this share of a part's weights


@dataclass(frozen=True)
class Steps:
    """The calls of a graph in order.

    Sizes and what depends on weights alone are not among them: each part computes these itself.
    """

    nodes: tuple[fx.Node, ...]
    index: dict[fx.Node, int]
    weights: dict[fx.Node, int]  # placeholders of weights, with their bytes
    constants: set[fx.Node]  # calls that depend on weights alone

    @classmethod
    def of(cls, graph: fx.Graph, plan: IOPlan, live: set[fx.Node]) -> Steps:
        """Return the live calls of a program, and its weights."""
        constants = _constants(graph, plan)
        calls = [n for n in graph.nodes if n in live and n.op == "call_function"]
        nodes = tuple(n for n in calls if not is_number(n) and n not in constants)
        sizes = {
            node: value.numel() * narrow(value.dtype).itemsize
            for node, (_, value) in plan.constants.items()
        }
        sizes.update((s.node, 0) for s in plan.states)
        return cls(nodes, {n: i for i, n in enumerate(nodes)}, sizes, constants)

    def uses(self, node: fx.Node) -> list[int]:
        """Return the positions of the calls that use a value, also through sizes."""
        found: list[int] = []
        stack = list(node.users)
        while stack:
            user = stack.pop()
            if user in self.index:
                found.append(self.index[user])
            elif is_number(user) or user in self.constants:
                stack.extend(user.users)
        return found


def _constants(graph: fx.Graph, plan: IOPlan) -> set[fx.Node]:
    found: set[fx.Node] = set()
    known = set(plan.constants)
    for node in graph.nodes:
        if node.op == "get_attr":
            known.add(node)
        elif node.op == "call_function" and known.issuperset(node.all_input_nodes):
            known.add(node)
            found.add(node)
    return found


@dataclass(frozen=True)
class Candidate:
    """A position at which the graph may be cut; `tensors` cross it."""

    at: int
    tensors: int


def choose(
    steps: Steps, plan: IOPlan, *, parts: int | None = None, max_bytes: int | None = None
) -> list[int]:
    """Return the positions of the cuts, in order; each is the index of the first call after it."""
    candidates = _candidates(steps, plan)
    ends = [Candidate(0, 0), *candidates, Candidate(len(steps.nodes), 0)]
    weights = _weights_between(steps, [end.at for end in ends])
    if parts is not None:
        return _equal(ends, weights, parts)
    assert max_bytes is not None
    return _limited(steps, ends, weights, max_bytes)


def _weights_between(steps: Steps, ends: Sequence[int]) -> list[list[int]]:
    """Return the bytes of the weights that the calls between two positions use.

    A weight that several parts use is stored in each.
    """
    single, shared = [0] * (len(steps.nodes) + 1), []
    for node, size in steps.weights.items():
        positions = set(steps.uses(node)) if size else set()
        if len(positions) == 1:
            single[positions.pop() + 1] += size
        elif positions:
            shared.append((size, positions))
    before = list(accumulate(single))
    return [
        [
            max(0, before[end] - before[start])
            + sum(size for size, used in shared if any(start <= p < end for p in used))
            for end in ends
        ]
        for start in ends
    ]


def _candidates(steps: Steps, plan: IOPlan) -> list[Candidate]:
    """Return the best positions: between two weights, the one that the fewest tensors cross."""
    count = len(steps.nodes)
    crossing, blocked = _crossing(steps, plan)
    for low, high in _state_spans(steps, plan):
        blocked.update(range(low + 1, high + 1))
    first_uses = {min(u) for n, size in steps.weights.items() if size and (u := steps.uses(n))}
    best: list[Candidate] = []
    group: list[Candidate] = []
    for cut in range(1, count):
        if cut - 1 in first_uses and group:
            best.append(min(group, key=lambda c: c.tensors))
            group = []
        if cut not in blocked:
            group.append(Candidate(cut, crossing[cut]))
    best += [min(group, key=lambda c: c.tensors)] if group else []
    while len(best) > _CANDIDATES:  # every second one, of two the one with fewer tensors
        pairs = [best[i : i + 2] for i in range(0, len(best), 2)]
        best = [min(pair, key=lambda c: c.tensors) for pair in pairs]
    return best


def _crossing(steps: Steps, plan: IOPlan) -> tuple[list[int], set[int]]:
    """Return how many tensors cross each position, and the positions that cannot be cut."""
    crossing = [0] * (len(steps.nodes) + 1)
    blocked: set[int] = set()
    values = list(enumerate(steps.nodes))
    values += [(0, port.node) for port in plan.inputs]  # a later part takes these too
    for at, node in values:
        cuts = range(at + 1, max(steps.uses(node), default=at) + 1)
        for cut in cuts:
            crossing[cut] += 1
        if _is_unbacked(node) or not isinstance(node.meta["val"], _PASSED):
            blocked.update(cuts)
        if _may_be_fused(node, steps):
            blocked.add(at)
    return crossing, blocked


def _may_be_fused(node: fx.Node, steps: Steps) -> bool:
    """Return whether `fuse_batch_norm` may merge a node into the layer before it."""
    if "batch_norm" in str(node.target):
        return True
    is_known = [a in steps.weights or a in steps.constants for a in node.all_input_nodes]
    return node.target is aten.mul.Tensor and any(is_known)


def _is_unbacked(node: fx.Node) -> bool:
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and bool(free_unbacked_symbols(value))


def _state_spans(steps: Steps, plan: IOPlan) -> Iterator[tuple[int, int]]:
    """Yield the first and last call that concerns each state: they stay in one part."""
    for state in plan.states:
        found = steps.uses(state.node)
        if state.written in steps.index:
            found.append(steps.index[state.written])
        if found:
            yield min(found), max(found)


def _equal(ends: Sequence[Candidate], weights: Sequence[Sequence[int]], parts: int) -> list[int]:
    """Return the cuts into parts of nearly equal weights, by dynamic programming."""
    if parts > len(ends) - 1:
        raise ConversionError(
            f"the model cannot be cut into {parts} parts: there are {len(ends) - 2} places for a "
            f"cut outside of states\n  try   pass parts={max(1, len(ends) - 1)} or fewer"
        )
    target = max(1.0, weights[0][-1] / parts)

    def cost(start: int, end: int) -> float:
        off = (weights[start][end] - target) / target
        return off * off + _PER_TENSOR * ends[end].tensors

    best = [[math.inf] * len(ends) for _ in range(parts + 1)]
    came = [[0] * len(ends) for _ in range(parts + 1)]
    best[0][0] = 0.0
    for part in range(1, parts + 1):
        for end in range(part, len(ends)):
            for start in range(part - 1, end):
                total = best[part - 1][start] + cost(start, end)
                if total < best[part][end]:
                    best[part][end], came[part][end] = total, start
    cuts, end = [], len(ends) - 1
    for part in range(parts, 1, -1):
        end = came[part][end]
        cuts.append(ends[end].at)
    return cuts[::-1]


def _limited(
    steps: Steps, ends: Sequence[Candidate], weights: Sequence[Sequence[int]], limit: int
) -> list[int]:
    """Return the fewest cuts with at most `limit` bytes of weights in each part."""
    best: list[tuple[int, int]] = [(0, 0), *[(len(ends) + 1, 0)] * (len(ends) - 1)]
    came = [0] * len(ends)
    for end in range(1, len(ends)):
        for start in range(end):
            count, tensors = best[start]
            found = (count + 1, tensors + ends[end].tensors)
            if weights[start][end] <= limit and found < best[end]:
                best[end], came[end] = found, start
    if best[-1][0] > len(ends):
        pairs = zip(range(len(ends) - 1), range(1, len(ends)), strict=True)
        start, end = max(pairs, key=lambda pair: weights[pair[0]][pair[1]])
        call = steps.nodes[ends[start].at]
        raise ConversionError(
            f"the weights from %{call.name} on have {weights[start][end]} bytes and cannot be "
            f"divided, more than max_bytes={limit}\n  try   pass a larger max_bytes, or compress "
            "the weights"
        )
    cuts, end = [], len(ends) - 1
    while came[end]:
        end = came[end]
        cuts.append(ends[end].at)
    return cuts[::-1]
