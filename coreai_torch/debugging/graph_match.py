"""Match the operations of one graph with those of another."""

from __future__ import annotations

import difflib
import hashlib
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import Any

from ..asset import reading
from .graph import Graph, Key, Operation, graph_of_function

Pairs = dict[Key, Key]


class GraphDiffSummary(str):
    """A difference in one line, with its counts as attributes."""

    source_node_count: int
    target_node_count: int
    source_edge_count: int
    target_edge_count: int
    mapped_node_count: int
    modified_node_count: int
    unmapped_source_node_count: int
    unmapped_target_node_count: int

    def to_dict(self) -> dict[str, int]:
        """Return the counts."""
        return dict(vars(self))


@dataclass(frozen=True)
class GraphDiff:
    """Two graphs, and the pairs of operations that correspond to each other."""

    source_graph: Graph
    target_graph: Graph
    pairs: Mapping[Key, Key]

    @cached_property
    def is_isomorphic(self) -> bool:
        """Whether both compute the same from inputs to outputs, whatever values weights have."""
        source, target = fingerprints(self.source_graph), fingerprints(self.target_graph)
        return Counter(source.values()) == Counter(target.values()) and [
            source[key] for key in self.source_graph.outputs
        ] == [target[key] for key in self.target_graph.outputs]

    @cached_property
    def only_in_source(self) -> tuple[Operation, ...]:
        """The operations that the target lacks."""
        return tuple(o for o in self.source_graph if o.key not in self.pairs)

    @cached_property
    def only_in_target(self) -> tuple[Operation, ...]:
        """The operations that the source lacks."""
        taken = set(self.pairs.values())
        return tuple(o for o in self.target_graph if o.key not in taken)

    @cached_property
    def rewired(self) -> tuple[tuple[Operation, Operation], ...]:
        """Pairs of equal operations whose inputs are not a pair."""
        return tuple(
            (a, b) for a, b in self._both() if tuple(map(self.pairs.get, a.inputs)) != b.inputs
        )

    @cached_property
    def weights(self) -> tuple[tuple[Operation, Operation], ...]:
        """Pairs of constants with different values; an exported program records no values."""
        return tuple((a, b) for a, b in self._both() if a.value != b.value)

    def _both(self) -> list[tuple[Operation, Operation]]:
        ours, theirs = self.source_graph.by_key, self.target_graph.by_key
        return [(ours[a], theirs[b]) for a, b in self.pairs.items()]

    @property
    def source_to_target_mapping(self) -> dict[Key, Key]:
        """The keys of corresponding operations."""
        return dict(self.pairs)

    @property
    def target_to_source_mapping(self) -> dict[Key, Key]:
        """The keys of corresponding operations, from the target."""
        return {target: source for source, target in self.pairs.items()}

    @property
    def unmapped_source_nodes(self) -> list[Key]:
        """The keys of operations that the target lacks."""
        return [operation.key for operation in self.only_in_source]

    @property
    def unmapped_target_nodes(self) -> list[Key]:
        """The keys of operations that the source lacks."""
        return [operation.key for operation in self.only_in_target]

    @property
    def summary(self) -> GraphDiffSummary:
        """The difference in one line, with its counts as attributes."""
        counts = (
            f"{len(self.source_graph)} and {len(self.target_graph)} operations, "
            f"{len(self.pairs)} in both, {len(self.only_in_source)} only in the source, "
            f"{len(self.only_in_target)} only in the target, {len(self.rewired)} rewired, "
            f"{len(self.weights)} weights with different values"
        )
        line = f"{'isomorphic' if self.is_isomorphic else 'different'}: {counts}"
        summary = GraphDiffSummary(line)
        summary.source_node_count = len(self.source_graph)
        summary.target_node_count = len(self.target_graph)
        summary.source_edge_count = sum(len(o.inputs) for o in self.source_graph)
        summary.target_edge_count = sum(len(o.inputs) for o in self.target_graph)
        summary.mapped_node_count = len(self.pairs)
        summary.modified_node_count = len(self.rewired) + len(self.weights)
        summary.unmapped_source_node_count = len(self.only_in_source)
        summary.unmapped_target_node_count = len(self.only_in_target)
        return summary


def fingerprints(graph: Graph, *, weights: bool = False) -> Mapping[Key, str]:
    """Return a hash of what each operation computes from the inputs; names do not count.

    Inputs are distinguished by position, weights by type alone, or also by their values.
    """
    made: dict[Key, str] = {}
    inputs = 0
    for operation in graph:
        parts = [operation.label, *(made[key] for key in operation.inputs)]
        if operation.op == "input":
            parts.append(str(inputs))
            inputs += 1
        if weights:
            parts.append(operation.value)
        text = "\0".join(parts)
        made[operation.key] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return made


def equal_pairs(source: Graph, target: Graph, *, weights: bool = False) -> Pairs:
    """Return the pairs that compute the same, with equal weights if asked."""
    groups = [_group(fingerprints(g, weights=weights), g) for g in (source, target)]
    return _pair_groups(*groups)


def matched(source: Graph, target: Graph, *, weights: bool = False) -> Pairs:
    """Return the pairs that compute the same, then pair the rest by label and order."""
    pairs = equal_pairs(source, target, weights=weights)
    taken = set(pairs.values())
    left = [operation for operation in source if operation.key not in pairs]
    right = [operation for operation in target if operation.key not in taken]
    labels = [operation.label for operation in left], [operation.label for operation in right]
    blocks = difflib.SequenceMatcher(None, *labels, autojunk=False).get_matching_blocks()
    for at, to, size in blocks:
        found = zip(left[at : at + size], right[to : to + size], strict=True)
        pairs |= {a.key: b.key for a, b in found}
    return pairs


def _group(names: Mapping[Key, str], graph: Graph) -> Mapping[str, list[Operation]]:
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph:
        groups[names[operation.key]].append(operation)
    return groups


def _pair_groups(
    source: Mapping[str, list[Operation]], target: Mapping[str, list[Operation]]
) -> Pairs:
    """Pair the members of equal groups; prefer constants with equal values."""
    pairs: Pairs = {}
    for name, group in source.items():
        others = list(target.get(name, ()))
        values = {operation.value for operation in others}
        for operation in sorted(group, key=lambda o: o.value not in values):
            if others:
                same = [o for o in others if o.value == operation.value]
                other = (same or others)[0]
                others.remove(other)
                pairs[operation.key] = other.key
    return pairs


def paired_by_node(source: Graph, target: Graph) -> Pairs:
    """Pair the operations that give the result of the same FX node, by the recorded locations."""
    left, right = _results(source), _results(target)
    return {left[node]: right[node] for node in left if node in right}


def _results(graph: Graph) -> Mapping[str, Key]:
    """Return the operation that gives each FX node's result: no other one of the node uses it."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph:
        if operation.fx_node and not operation.is_constant and operation.op != "input":
            groups[operation.fx_node].append(operation)
    used = _only_used_result(graph)
    return {node: used.get(key := _last(group), key) for node, group in groups.items()}


def _only_used_result(graph: Graph) -> Mapping[Key, Key]:
    """Map a node with several results to its `getitem` if only one result is used.

    An example is a norm that also returns its mean.
    """
    parts: dict[Key, list[Key]] = defaultdict(list)
    for operation in graph:
        if operation.op.endswith("getitem"):
            parts[operation.inputs[0]].append(operation.key)
    return {node: keys[0] for node, keys in parts.items() if len(keys) == 1}


def _last(group: Iterable[Operation]) -> Key:
    members = list(group)
    used = {key for operation in members for key in operation.inputs}
    return [operation.key for operation in members if operation.key not in used][-1]


class WeightPolicy(Enum):
    """Whether constants with different values are different operations."""

    IGNORE = "ignore"
    DIGEST = "digest"


@dataclass(frozen=True)
class Ambiguity:
    """Operations that another one of the same program equals; their pairs may be swapped."""

    ids: frozenset[int] = frozenset()

    @property
    def count(self) -> int:
        """The number of ambiguous operations of the earlier program."""
        return len(self.ids)


@dataclass(frozen=True)
class OpIdAlignment:
    """Ids of the earlier program and those of the later one that they correspond to.

    `modified` are pairs of one op with other inputs, `identical` those that compute the same; both
    are ids of the earlier program. `modules` names the modules of both by the ids of `mapping`.
    """

    mapping: Mapping[int, int]
    added: frozenset[int] = frozenset()
    removed: frozenset[int] = frozenset()
    modified: frozenset[int] = frozenset()
    identical: frozenset[int] = frozenset()
    ambiguity: Ambiguity = field(default_factory=Ambiguity)
    modules: Mapping[int, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        names = ("added", "removed", "modified", "identical")
        return {
            "mapping": {str(before): after for before, after in self.mapping.items()},
            **{name: sorted(getattr(self, name)) for name in names},
            "ambiguous": self.ambiguity.count,
        }


def op_id_alignment(
    before: reading.Source,
    after: reading.Source,
    weights: WeightPolicy = WeightPolicy.IGNORE,
    *,
    entry_point: str | None = None,
) -> OpIdAlignment:
    """Pair the operations of the functions that both programs have, or of one entry point.

    With `WeightPolicy.IGNORE`, layers of one shape that read the same input are ambiguous.
    """
    largest = None if weights is WeightPolicy.DIGEST else 0
    sides = [reading.read(source, largest=largest) for source in (before, after)]
    given = list(sides[0].functions) if entry_point is None else [entry_point]
    names = [name for name in given if entry_point or name in sides[1].functions]
    parts = [
        _aligned(graph_of_function(sides[0], n), graph_of_function(sides[1], n), weights)
        for n in names
    ]
    every = [
        {i for n in ([entry_point] if entry_point else s.functions) for i in _ids(s, n)}
        for s in sides
    ]
    mapping = {k: v for part in parts for k, v in part.mapping.items()}
    return OpIdAlignment(
        mapping,
        frozenset(every[1] - set(mapping.values())),
        frozenset(every[0] - mapping.keys()),
        frozenset(i for part in parts for i in part.modified),
        frozenset(i for part in parts for i in part.identical),
        Ambiguity(frozenset(i for part in parts for i in part.ambiguity.ids)),
        {k: v for part in parts for k, v in part.modules.items()},
    )


def _ids(program: reading.Program, function: str) -> set[int]:
    keys = graph_of_function(program, function).get_op_ids()
    return {key for key in keys if isinstance(key, int)}


def _aligned(before: Graph, after: Graph, weights: WeightPolicy) -> OpIdAlignment:
    digest = weights is WeightPolicy.DIGEST
    ours, theirs = (fingerprints(graph, weights=digest) for graph in (before, after))
    pairs: dict[Key, Key] = matched(before, after, weights=digest)
    mapping = {a: b for a, b in pairs.items() if isinstance(a, int) and isinstance(b, int)}
    same = {a for a, b in mapping.items() if ours[a] == theirs[b]}
    often = Counter(ours.values())
    doubtful = (a for a in mapping if often[ours[a]] > 1 and not before.by_key[a].is_constant)
    return OpIdAlignment(
        mapping,
        modified=frozenset(mapping.keys() - same),
        identical=frozenset(same),
        ambiguity=Ambiguity(frozenset(doubtful)),
        modules={a: after.by_key[b].module or before.by_key[a].module for a, b in mapping.items()},
    )
