"""Store the weights of linear layers transposed, the layout in which they are multiplied.

A linear layer multiplies by its transposed weight. The converter stores large weights as they are,
since a transposed copy takes time and memory, and leaves the transpose to the device's compiler. A
runtime without such a compiler transposes them in every step: a token of a model with 28 million
weights takes 86 ms, and 10 ms if the weights are stored transposed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import TypeAlias

import torch
from torch import Tensor, fx

from ..compression.memory import release_mapped_pages
from ..fx.editing import Writer, supersede
from ..passes.join_products import join_products
from ..torch_compat import aten

Program: TypeAlias = torch.export.ExportedProgram
Key: TypeAlias = tuple[int, torch.Size]


def arrange_weights(
    programs: Collection[Program], *, turned: bool, embeddings: bool = False
) -> None:
    """Join the weights of layers that read one tensor, and store them transposed if `turned`.

    So are `embeddings` that are also the head, which then read columns.
    """
    join_products(programs, turned=turned)
    if turned:
        transpose_weights(programs, embeddings=embeddings)


def transpose_weights(programs: Collection[Program], *, embeddings: bool = True) -> None:
    """Transpose the weights of linear layers, the same weights in all programs.

    A weight that is also an embedding is stored once: it is transposed with `embeddings` only, and
    the embedding then reads columns. A weight with any other use is left unchanged.
    """
    linear: set[Key] = set()
    unchanged: set[Key] = set()
    for program in programs:
        for node, weight in _weights(program):
            if any(_is_linear(user, node) for user in node.users):
                linear.add(_key(weight))
            if not all(
                _is_linear(user, node) or (embeddings and _is_embedding(user, node))
                for user in node.users
            ):
                unchanged.add(_key(weight))
    transposed: dict[Key, Tensor] = {}
    for program in programs:
        for node, weight in list(_weights(program)):
            key = _key(weight)
            if key not in linear - unchanged:
                continue
            if key not in transposed:
                copy = weight.detach().t().contiguous()
                release_mapped_pages(weight)
                transposed[key] = torch.nn.Parameter(copy, requires_grad=False)
            _replace(program, node, transposed[key])


def _weights(program: Program) -> Iterator[tuple[fx.Node, Tensor]]:
    """Yield each matrix parameter that the program reads, with its placeholder."""
    names = program.graph_signature.inputs_to_parameters
    for node in program.graph.nodes:
        if node.op == "placeholder" and node.name in names and node.users:
            weight = program.state_dict[names[node.name]]
            if weight.dim() == 2:
                yield node, weight


def _key(weight: Tensor) -> Key:
    """Return a key that is equal for one weight under two names."""
    return weight.data_ptr(), weight.shape


def _is_linear(user: fx.Node, weight: fx.Node) -> bool:
    matches = user.target is aten.linear.default and user.args[1] is weight
    return matches and weight not in user.args[::2]


def _is_embedding(user: fx.Node, weight: fx.Node) -> bool:
    """Return whether `user` looks up rows of `weight` for tokens `[batch, length]`.

    The arguments after the second one concern gradients only.
    """
    matches = user.target is aten.embedding.default and user.args[0] is weight
    return matches and user.args[1].meta["val"].dim() == 2


def _replace(program: Program, node: fx.Node, transposed: Tensor) -> None:
    """Bind the placeholder to the transposed weight and rewrite its users."""
    program.state_dict[program.graph_signature.inputs_to_parameters[node.name]] = transposed
    node.meta["val"] = node.meta["val"].t().contiguous()
    for user in list(node.users):
        new = _matmul(user, node) if _is_linear(user, node) else _select_columns(user, node)
        new.meta["val"] = user.meta["val"]
        supersede(user, new)


def _matmul(user: fx.Node, weight: fx.Node) -> fx.Node:
    (x, _, *bias), writer = user.args, Writer(user)
    product = writer.call(aten.matmul.default, x, weight)
    if bias and bias[0] is not None:
        product = writer.call(aten.add.Tensor, product, bias[0])
    return product


def _select_columns(user: fx.Node, weight: fx.Node) -> fx.Node:
    tokens, writer = user.args[1], Writer(user)
    flat = writer.call(aten.view.default, tokens, [-1])
    columns = writer.call(aten.index_select.default, weight, 1, flat)
    rows = writer.call(aten.permute.default, columns, [1, 0])
    sizes = [tokens.meta["val"].shape[0], -1, weight.meta["val"].shape[0]]
    return writer.call(aten.view.default, rows, sizes)
