"""Make inputs of other sizes than the exported ones, as far as the program accepts them."""

from __future__ import annotations

import dataclasses
import math
import re

import torch

_SIZE = re.compile(r"L\['inputs'\]\[(\d+)\]\.size\(\)\[(\d+)\]")


def feeds(exported, model):
    """Return inputs with every dynamic size larger by one, as far as the export guards allow.

    Return the exported inputs if torch rejects the others, or if the case sets `one_size`.
    """
    promised = _exported_shapes(exported)
    before = {
        size.node.expr: size.node.hint
        for shape in promised
        for size in shape
        if isinstance(size, torch.SymInt) and size.node.expr.is_Symbol
    }
    after = _allowed_sizes(exported, promised, before)
    shapes = [tuple(_at(size, after) for size in shape) for shape in promised]
    own = [_make_feed(*each) for each in zip(model.given, model.feeds, shapes, strict=True)]
    return own if _is_accepted(model, own) else model.feeds


def _is_accepted(model, own):
    try:
        model(*own)
    except Exception:  # torch raises many types
        return False
    return not model.case.one_size


def _exported_shapes(exported):
    names = exported.graph_signature.user_inputs
    nodes = {n.name: n for n in exported.graph.nodes if n.op == "placeholder"}
    return [nodes[name].meta["val"].shape for name in names]


def _allowed_sizes(exported, promised, before):
    ranges = exported.range_constraints
    after = {s: n + 1 if n + 1 <= ranges[s].upper else n for s, n in before.items()}
    while broken := [code for code in exported._guards_code if not _holds(code, promised, after)]:
        kept = {
            symbol: before[symbol]
            for code in broken
            for feed, axis in _SIZE.findall(code)
            for symbol in promised[int(feed)][int(axis)].node.expr.free_symbols
        }
        if all(after[symbol] == n for symbol, n in kept.items()):
            raise AssertionError(f"the exported sizes violate the guards: {broken}")
        after |= kept
    return after


def _holds(code, promised, sizes):
    def size(found):
        return str(_at(promised[int(found[1])][int(found[2])], sizes))

    return eval(_SIZE.sub(size, code), {"math": math, "torch": torch})  # code that torch generated


def _at(size, sizes):
    return int(size.node.expr.subs(sizes)) if isinstance(size, torch.SymInt) else size


def _make_feed(given, feed, shape):
    """Return other values of the same range; given values keep their order, the last repeats."""
    if tuple(feed.shape) == shape:
        return feed
    if given.values is None:
        return dataclasses.replace(given, shape=shape).make(len(shape))
    for axis, size in enumerate(shape):
        places = torch.arange(size).clamp(max=feed.shape[axis] - 1)
        feed = feed.index_select(axis, places)
    return feed
