"""Join linear layers of one tensor into one product: query, key and value; gate and up.

A GPU runs one large product faster than several small ones. The weights are joined, with their
scales, tables and zero points if they are compressed, and the result is split. Weights that another
op reads too, and weights that are compressed in other ways, stay apart.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from ..compression.memory import release_mapped_pages
from ..fx.editing import Writer, supersede
from ..torch_compat import aten
from .split_products import split_products
from .stored_weights import StoredWeights

Program: TypeAlias = torch.export.ExportedProgram
Key: TypeAlias = tuple[int, torch.Size, tuple[int, ...]]

_COMPRESSION = torch.ops.coreai
# Ops that expand a weight, with the number of operands that have the rows of the weight; the other
# tensors have a row for each block of rows.
_EXPANDING = {
    _COMPRESSION.constexpr_blockwise_shift_scale.default: 1,
    _COMPRESSION.lut_to_dense.default: 1,
    _COMPRESSION.sparse_to_dense.default: 2,
}
_UNPACK = _COMPRESSION.unpack_bits.default


def join_products(programs: Collection[Program], *, turned: bool = False) -> int:
    """Join the linear layers of one tensor, the same ones in all programs; return how many remain.

    The programs are changed. A joined weight lies in memory as it is multiplied if it is `turned`,
    so that its transposed form is not a copy.
    """
    stores = [StoredWeights(program) for program in programs]
    groups = [group for store in stores for group in _groups(store)]
    allowed = _exclusive(stores, groups)
    joined = [group for group in groups if group.identity in allowed]
    tensors: dict[Any, Tensor] = {}
    for group in joined:
        _Join(group, tensors, turned).apply()
    for store in stores:
        split_products(store.program)
        store.drop_unused()
    return len(joined)


@dataclass(frozen=True)
class _Group:
    """Linear layers of one tensor whose weights have one form, in the order of the graph."""

    store: StoredWeights
    layers: tuple[fx.Node, ...]

    @property
    def identity(self) -> tuple[Key, ...]:
        """Return what is equal for the same weights in another program."""
        leaves = [leaf for layer in self.layers for leaf in _leaves(layer.args[1])]
        return tuple(_key(self.store.tensor(leaf)) for leaf in leaves)


def _key(tensor: Any) -> Key:
    """Return a key that is equal for one weight under two names."""
    return tensor.data_ptr(), tensor.shape, tensor.stride()


def _groups(store: StoredWeights) -> Iterator[_Group]:
    """Yield the layers that can be joined."""
    by_form: dict[Any, list[fx.Node]] = {}
    for node in store.graph.nodes:
        if node.op != "call_function" or node.target is not aten.linear.default:
            continue
        x, weight, *bias = node.args
        form = _form(store, weight)
        has_known_bias = not bias or bias[0] is None or store.tensor(bias[0]) is not None
        if form is not None and has_known_bias:
            by_form.setdefault((x, form), []).append(node)
    for layers in by_form.values():
        for some in _aligned(layers):
            if len(some) > 1:
                yield _Group(store, tuple(some))


def _form(store: StoredWeights, node: fx.Node) -> Any:
    """Return what must be equal for weights that are joined; None if they cannot be.

    It is the ops that compute the weight, the dtypes, and all sizes except the first.
    """
    fake = node.meta["val"]
    if store.tensor(node) is not None:
        return (store.kind(node), fake.dtype, fake.shape[1:]) if fake.numel() else None
    if node.op != "call_function" or node.kwargs or len(node.users) != 1:
        return None
    if node.target is _UNPACK:
        packed, bits, shape, is_signed = node.args
        is_stored = store.tensor(packed) is not None
        return (_UNPACK, bits, tuple(shape[1:]), is_signed) if is_stored else None
    if node.target not in _EXPANDING:
        return None
    given = [_form(store, one) if isinstance(one, fx.Node) else (one,) for one in node.args]
    return None if None in given else (node.target, *given)


def _leaves(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the stored tensors that a weight is computed from."""
    if node.op == "placeholder":
        yield node
    for inner in node.all_input_nodes:
        yield from _leaves(inner)


def _inner(node: fx.Node) -> Iterator[fx.Node]:
    """Yield the ops that compute a weight."""
    if node.op == "call_function":
        yield node
    for inner in node.all_input_nodes:
        yield from _inner(inner)


def _rows(node: fx.Node) -> int:
    return int(node.meta["val"].shape[0])


def _blocks(weight: fx.Node) -> tuple[int, ...]:
    """Return how many rows share a scale or a table, for each tensor of these."""
    found = []
    for node in _inner(weight):
        if node.target in _EXPANDING:
            data, *others = [one for one in node.args if isinstance(one, fx.Node)]
            found += [_rows(data) // _rows(o) for o in others[_EXPANDING[node.target] - 1 :]]
    return tuple(found)


def _aligned(layers: Sequence[fx.Node]) -> Iterator[Sequence[fx.Node]]:
    """Yield layers whose blocks are multiples of the smallest one: these become its repetitions."""
    blocks = [_blocks(layer.args[1]) for layer in layers]
    if all(size % min(sizes) == 0 for sizes in zip(*blocks, strict=True) for size in sizes):
        yield layers
        return
    for wanted in dict.fromkeys(blocks):
        yield [one for one, own in zip(layers, blocks, strict=True) if own == wanted]


def _exclusive(stores: Sequence[StoredWeights], groups: Sequence[_Group]) -> set[Any]:
    """Return the identities of groups whose weights nothing else reads, in any program.

    A weight that is also an embedding, or belongs to another group, would be stored twice.
    """
    readers: dict[fx.Node, Any] = {}
    for group in groups:
        for layer in group.layers:
            readers.update((node, group.identity) for node in (layer, *_inner(layer.args[1])))
    uses: dict[Key, set[Any]] = {}
    for store in stores:
        for node in store.nodes():
            found = uses.setdefault(_key(store.tensor(node)), set())
            found.update(readers.get(user) for user in node.users)
    return {
        group.identity
        for group in groups
        if len(set(group.identity)) == len(group.identity)
        and all(uses[key] == {group.identity} for key in group.identity)
    }


class _Join:
    """The replacement of one group of layers by one product."""

    def __init__(self, group: _Group, tensors: dict[Any, Tensor], turned: bool) -> None:
        self._store, self._layers = group.store, group.layers
        self._tensors, self._turned = tensors, turned

    def apply(self) -> None:
        """Insert the product and the split before the first layer."""
        first = self._layers[0]
        weights = [layer.args[1] for layer in self._layers]
        given = [first.args[0], self._data(weights), *self._bias()]
        writer = Writer(first)
        product = writer.call(aten.linear.default, *given)
        sizes, last = [_rows(weight) for weight in weights], first.meta["val"].dim() - 1
        for layer, part in zip(self._layers, writer.split(product, sizes, last), strict=True):
            supersede(layer, part)

    def _bias(self) -> list[fx.Node]:
        """Return the joined bias, with zeros for a layer without one; nothing if none has one."""
        given = [layer.args[2] if len(layer.args) > 2 else None for layer in self._layers]
        stored = [one for one in given if isinstance(one, fx.Node)]
        if not stored:
            return []
        known = [None if one is None else self._value(one) for one in given]
        key = ("bias", *(None if one is None else _key(one) for one in known))
        if key not in self._tensors:
            like = next(one for one in known if one is not None)
            self._tensors[key] = torch.cat(
                [
                    like.new_zeros(_rows(layer.args[1])) if one is None else one
                    for layer, one in zip(self._layers, known, strict=True)
                ]
            )
        return [self._store.add(stored, self._tensors[key])]

    def _data(self, parts: Sequence[Any], depth: int = 0) -> fx.Node:
        """Return the joined rows of weights, or of the operands of the ops that expand them."""
        first = parts[0]
        if first.op == "placeholder" or first.target is _UNPACK:
            return self._stored(parts, [1] * len(parts), self._turned and not depth)
        given: list[Any] = []
        rows = [_rows(part.args[0]) for part in parts]
        for place, operand in enumerate(first.args):
            operands = [part.args[place] for part in parts]
            if not isinstance(operand, fx.Node):
                given.append(operand)
            elif place < _EXPANDING[first.target]:
                given.append(self._data(operands, depth + 1))
            else:
                block = [count // _rows(one) for count, one in zip(rows, operands, strict=True)]
                given.append(self._stored(operands, [size // min(block) for size in block]))
        return Writer(self._layers[0]).call(first.target, *given)

    def _stored(
        self, parts: Sequence[fx.Node], copies: Sequence[int], turned: bool = False
    ) -> fx.Node:
        """Return the rows of stored tensors, each one repeated, as one stored tensor."""
        leaves = [next(_leaves(part)) for part in parts]
        key = (turned, *copies, *(_key(self._store.tensor(leaf)) for leaf in leaves))
        if key not in self._tensors:
            self._tensors[key] = self._joined(parts, copies, turned)
        return self._store.add(leaves, self._tensors[key])

    def _joined(self, parts: Sequence[fx.Node], copies: Sequence[int], turned: bool) -> Tensor:
        tensors = [self._value(part) for part in parts]
        if turned:
            joined = torch.cat([one.t() for one in tensors], 1).contiguous().t()
        else:
            repeated = zip(tensors, copies, strict=True)
            joined = torch.cat([t.repeat_interleave(n, 0) if n > 1 else t for t, n in repeated])
        for one in tensors:
            release_mapped_pages(one)
        return joined

    def _value(self, node: fx.Node) -> Any:
        if node.target is _UNPACK:
            return _UNPACK(self._store.tensor(node.args[0]), *node.args[1:])
        stored = self._store.tensor(node)
        return None if stored is None else stored.detach()
