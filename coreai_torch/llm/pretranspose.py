"""Weights of linear layers, stored as they are multiplied with.

A program multiplies by a weight transposed. The converter keeps large weights as they are, since a
copy of them takes time and memory, and leaves turning them to the device's compiler. A run time
without one turns them in every step: 86 ms for a token of 28 million weights, 10 ms if they are
turned before.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from ..torch_compat import aten

Program: TypeAlias = torch.export.ExportedProgram
Place: TypeAlias = tuple[int, torch.Size]


def turn(programs: Collection[Program]) -> None:
    """Turn the weights of linear layers, the same ones in all programs.

    One that is an embedding too is read by columns then, so that it is stored once. What is read
    in any other way stays.
    """
    multiplied: set[Place] = set()
    kept: set[Place] = set()
    for program in programs:
        for node, weight in _weights(program):
            if any(_multiplies(user, node) for user in node.users):
                multiplied.add(_place(weight))
            if not all(_multiplies(user, node) or _picks(user, node) for user in node.users):
                kept.add(_place(weight))
    turned: dict[Place, Tensor] = {}
    for program in programs:
        for node, weight in list(_weights(program)):
            place = _place(weight)
            if place not in multiplied - kept:
                continue
            if place not in turned:
                fresh = weight.detach().t().contiguous()
                turned[place] = torch.nn.Parameter(fresh, requires_grad=False)
            _replace(program, node, turned[place])


def _weights(program: Program) -> Iterator[tuple[fx.Node, Tensor]]:
    """The matrices that the program reads, each with its placeholder."""
    names = program.graph_signature.inputs_to_parameters
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names and node.users:
            weight = program.state_dict[names[node.name]]
            if weight.dim() == 2:
                yield node, weight


def _place(weight: Tensor) -> Place:
    """The same for a weight that goes by two names."""
    return weight.data_ptr(), weight.shape


def _multiplies(user: fx.Node, weight: fx.Node) -> bool:
    by = user.target is aten.linear.default and user.args[1] is weight
    return by and weight not in user.args[::2]


def _picks(user: fx.Node, weight: fx.Node) -> bool:
    """Arguments beyond the second tell of gradients; tokens are `[batch, length]`."""
    by = user.target is aten.embedding.default and user.args[0] is weight
    return by and user.args[1].meta["val"].dim() == 2


def _replace(program: Program, node: fx.Node, turned: Tensor) -> None:
    """Let the placeholder stand for the turned weight, and its readers read that."""
    program.state_dict[program.graph_signature.inputs_to_parameters[node.name]] = turned
    node.meta["val"] = node.meta["val"].t().contiguous()
    for user in list(node.users):
        made = _multiplied(user, node) if _multiplies(user, node) else _embedded(user, node)
        made.meta["val"] = user.meta["val"]
        user.replace_all_uses_with(made)
        user.graph.erase_node(user)


def _multiplied(user: fx.Node, weight: fx.Node) -> fx.Node:
    x, _, *bias = user.args
    made = _inserted(user, aten.matmul.default, x, weight)
    if bias and bias[0] is not None:
        made = _inserted(user, aten.add.Tensor, made, bias[0])
    return made


def _embedded(user: fx.Node, weight: fx.Node) -> fx.Node:
    tokens = user.args[1]
    flat = _inserted(user, aten.view.default, tokens, [-1])
    columns = _inserted(user, aten.index_select.default, weight, 1, flat)
    rows = _inserted(user, aten.permute.default, columns, [1, 0])
    sizes = [tokens.meta["val"].shape[0], -1, weight.meta["val"].shape[0]]
    return _inserted(user, aten.view.default, rows, sizes)


def _inserted(before: fx.Node, target: Any, *args: Any) -> fx.Node:
    """An op before another, with its place in the model's source and a type of its own."""
    with before.graph.inserting_before(before):
        made: fx.Node = before.graph.call_function(target, args)
    given = [one.meta["val"] if isinstance(one, fx.Node) else one for one in args]
    made.meta.update(before.meta, val=target(*given))
    return made
