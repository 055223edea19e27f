"""Which operation of one graph is which of another."""

from __future__ import annotations

import difflib
import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping

from .graph import Graph, Key, Operation

Pairs = dict[Key, Key]


def fingerprints(graph: Graph) -> Mapping[Key, str]:
    """What each operation computes, from the inputs on, whatever it is called.

    Inputs are told apart by their places, weights by their types alone.
    """
    made: dict[Key, str] = {}
    inputs = 0
    for operation in graph:
        parts = [operation.label, *(made[key] for key in operation.inputs)]
        if operation.op == "input":
            parts.append(str(inputs))
            inputs += 1
        text = "\0".join(parts)
        made[operation.key] = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
    return made


def alike(source: Graph, target: Graph) -> Pairs:
    """Pairs that compute the same."""
    return _in_order(_by(fingerprints(source), source), _by(fingerprints(target), target))


def matched(source: Graph, target: Graph) -> Pairs:
    """Pairs that compute the same; of what is left, those that do the same in the same order."""
    pairs = alike(source, target)
    taken = set(pairs.values())
    left = [operation for operation in source if operation.key not in pairs]
    right = [operation for operation in target if operation.key not in taken]
    labels = [operation.label for operation in left], [operation.label for operation in right]
    blocks = difflib.SequenceMatcher(None, *labels, autojunk=False).get_matching_blocks()
    for at, to, size in blocks:
        found = zip(left[at : at + size], right[to : to + size], strict=True)
        pairs |= {a.key: b.key for a, b in found}
    return pairs


def _by(names: Mapping[Key, str], graph: Graph) -> Mapping[str, list[Operation]]:
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph:
        groups[names[operation.key]].append(operation)
    return groups


def _in_order(
    source: Mapping[str, list[Operation]], target: Mapping[str, list[Operation]]
) -> Pairs:
    """Members of the same group; weights of the same type rather with the same content."""
    pairs: Pairs = {}
    for name, group in source.items():
        others = list(target.get(name, ()))
        held = {operation.value for operation in others}
        for operation in sorted(group, key=lambda o: o.value not in held):
            if others:
                same = [o for o in others if o.value == operation.value]
                other = (same or others)[0]
                others.remove(other)
                pairs[operation.key] = other.key
    return pairs


def paired_by_node(source: Graph, target: Graph) -> Pairs:
    """Pairs of operations that hold the result of the same FX node, by the recorded locations."""
    left, right = _results(source), _results(target)
    return {left[node]: right[node] for node in left if node in right}


def _results(graph: Graph) -> Mapping[str, Key]:
    """The operation that holds the result of each FX node: none of the node's others uses it."""
    groups: dict[str, list[Operation]] = defaultdict(list)
    for operation in graph:
        if operation.fx_node and not operation.is_constant and operation.op != "input":
            groups[operation.fx_node].append(operation)
    picked = _picked(graph)
    return {node: picked.get(key := _last(group), key) for node, group in groups.items()}


def _picked(graph: Graph) -> Mapping[Key, Key]:
    """The one result in use of a node with several, as of a norm that also gives its mean."""
    parts: dict[Key, list[Key]] = defaultdict(list)
    for operation in graph:
        if operation.op.endswith("getitem"):
            parts[operation.inputs[0]].append(operation.key)
    return {node: keys[0] for node, keys in parts.items() if len(keys) == 1}


def _last(group: Iterable[Operation]) -> Key:
    members = list(group)
    used = {key for operation in members for key in operation.inputs}
    return [operation.key for operation in members if operation.key not in used][-1]
