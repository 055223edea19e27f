"""Evaluate ops on constants in a module: those that lowerings emitted, or all of some kinds.

The pass `fold_constants` evaluates nodes of the exported graph. A lowering may still emit an op
whose operands are all constants: `atan2(x, weight)` tests whether `weight` is negative. The
compiler folds such ops in its own way (it finds 3 equal to infinity, and casts float16 numbers
below 6e-5 to zero, coreai-core 1.0.0b3), and the runtime folds them again at each load.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import torch

from ..asset.reading import bytes_of, read_op
from ..interpreter import registry
from ..interpreter.plan import evaluate
from ..ir import constants as stored
from ..ir import types
from ..ir.build import LITERAL, SMALL, Build, is_read
from ..ir.casting import element_dtype
from ..ir.constants import compacted, is_splat
from ..ir.dialect import RankedTensorType, Value, broadcast_to, reshape
from ..ir.shapes import is_constant
from . import editing
from .editing import Operation, kind

# Views of a weight. Above `SMALL` elements they stay in the program, so that no weight is copied
# (docs/adr/0011); ops that read them are evaluated.
_VIEWS = frozenset(
    f"coreai.{name}" for name in ("transpose", "reshape", "expand_dims", "shrink_dims")
)
# Ops that expand their operands to common sizes.
_BROADCASTING, _PRODUCT = (f"coreai.decomposable.broadcasting_{n}" for n in ("", "batch_matmul"))
# The compiler folds none of these. The first two generate large masks from a few numbers, the
# others expand compressed weights.
_KEPT = frozenset(
    f"coreai.{name}"
    for name in (
        "range",
        "broadcast_to",
        "blockwise_shift_scale",
        "build_sparse_with_bitmask",
        "dequantize",
        "lut_to_dense",
        "lut_to_sparse_with_bitmask",
        "sparse_with_bitmask_to_dense",
    )
)
# Elements of a constant of 8 or 16 bits that is stored in more bytes than the model has: a norm's
# weight in float16, but not the matrix of a linear layer. Masks are stored up to `SMALL` elements.
_SMALL_WIDENED = 1 << 14
# Bytes of a result that is stored although the program can expand it from fewer at each run: the
# product of a column and a row of 4,096 numbers takes 64 MB.
_SMALL_EXPANDED = 1 << 24


def fold_emitted(build: Build) -> None:
    """Replace the ops on constants in all graphs of an open module by their values."""
    _Folder(build).fold()


def fold_kinds(build: Build, kinds: Collection[str], then: Collection[str] = ()) -> None:
    """Replace ops of some kinds on constants by their values, whatever these take.

    The ops of the kinds `then` that read such a value are replaced as well.
    """
    for op in list(_of_kinds(build, kinds)):
        users = editing.users(op.results[0])
        if all(kind(user) in kinds for user in users):
            continue  # a part of the value that the user has
        value = _evaluated(op, kinds)
        if value is None:
            continue
        kept = False
        for user in users:
            rest = [editing.known(operand) for operand in list(user.operands)[1:]]
            if kind(user) in then and not any(one is None for one in rest):
                _store(user, evaluate(read_op(user), [value, *rest]))
            else:
                kept = True
        if kept:
            _store(op, value)
    for graph in editing.graphs(build.module):
        editing.erase_unused(graph)


def expanded_bytes(build: Build, kinds: Collection[str], *, of_constants: bool = False) -> int:
    """Return the bytes of the results of ops of some kinds that other ops read.

    With `of_constants`, only ops on a constant count.
    """
    return sum(
        bytes_of(read_op(op).types[0])
        for op in _of_kinds(build, kinds)
        if not of_constants or editing.made_by(op.operands[0], "constant") is not None
        if not all(kind(user) in kinds for user in editing.users(op.results[0]))
    )


def _of_kinds(build: Build, kinds: Collection[str]) -> Iterator[Operation]:
    for graph in editing.graphs(build.module):
        yield from (op for op in editing.ops_of(graph) if kind(op) in kinds)


def _evaluated(op: Operation, kinds: Collection[str]) -> torch.Tensor | None:
    """Return the value of an op on constants; None if an operand is not constant."""
    operands = []
    for operand in op.operands:
        inner = editing.made_by(operand, *kinds)
        operands.append(editing.known(operand) if inner is None else _evaluated(inner, kinds))
    return None if any(one is None for one in operands) else evaluate(read_op(op), operands)


def _store(op: Operation, value: torch.Tensor) -> None:
    """Replace an op by a constant, and let nothing use the op."""
    with editing.at(op):
        new = Build.current().folded(value.contiguous(), "expanded")
    if new.type != op.results[0].type:
        raise ValueError(f"the constant is {new.type}, but {op.name} returns {op.results[0].type}")
    editing.replace(op, [new])


class _Folder:
    """Finds the ops on constants from the constants on, so that other ops cost nothing."""

    def __init__(self, build: Build) -> None:
        self._build = build
        self._known = set(build.finished_constants)
        self._values: dict[Value, torch.Tensor] = {}  # of folded results that are still needed
        self._names: dict[Value, str] = {}
        self._folded: dict[Operation, None] = {}  # in order: operands before their readers
        self._views: dict[Operation, None] = {}
        self._expanding: dict[Operation, None] = {}  # changed at the end: a change ends iterations

    def fold(self) -> None:
        """Evaluate all ops on constants and drop the constants that nothing reads any more."""
        with torch.no_grad():
            waiting = list(self._build.finished_constants)
            while waiting:
                for use in waiting.pop().uses:
                    waiting += self._folded_results(use.owner)
        if self._folded or self._expanding:
            self._store_results()
            for op in self._expanding:
                _expand_at_run_time(op)
            self._erase_unused()
        self._build.finished_constants.clear()

    def _folded_results(self, op: Operation) -> Sequence[Value]:
        """Return the results of an op if it could be folded now."""
        if not all(map(self._is_known, op.operands)):
            return ()
        op = op.operation
        seen = (self._folded, self._views, self._expanding)
        if any(op in ops for ops in seen) or not self._may_fold(op):
            return ()
        if op.name in _VIEWS and _elements(op.results[0]) > SMALL:
            self._views[op] = None
        elif self._expands(op):
            self._expanding[op] = None
            return ()
        elif not self._evaluate(op):
            return ()
        self._known.update(op.results)
        return list(op.results)

    def _is_known(self, value: Value) -> bool:
        return value in self._known or is_constant(value)

    def _may_fold(self, op: Operation) -> bool:
        if op.name != "coreai.cast":
            return registry.is_known(op.name) and op.name not in _KEPT
        source, target = (element_dtype(value) for value in (op.operands[0], op.results[0]))
        most = SMALL if source == torch.bool else _SMALL_WIDENED
        return source.itemsize >= target.itemsize or _elements(op.results[0]) <= most

    def _expands(self, op: Operation) -> bool:
        """Return whether an op repeats elements of its operands to a result that is not stored."""
        is_elementwise = op.name.startswith(_BROADCASTING) and op.name != _PRODUCT
        if not is_elementwise and op.name != "coreai.tile":
            return False
        nbytes = _bytes(op.results[0])
        if nbytes <= _SMALL_EXPANDED:
            return False
        several = [operand for operand in op.operands if not self._has_equal_elements(operand)]
        return bool(several) and nbytes > sum(map(_bytes, several))

    def _has_equal_elements(self, value: Value) -> bool:
        content = self._values.get(value)
        if content is None and is_constant(value):
            content = self._build.content(value)
        return content is not None and is_splat(content)

    def _evaluate(self, op: Operation) -> bool:
        """Compute the results of an op; return False if it must run in the program."""
        try:
            made = evaluate(read_op(op), [self._value(operand) for operand in op.operands])
            results = list(made) if len(op.results) > 1 else [made]
            computed = [_type_of(result) for result in results]
        except Exception:  # raise only if the op really runs
            return False
        if [value.type for value in op.results] != computed:
            return False  # a dynamic size, or integers narrower than a byte
        self._folded[op] = None
        self._values.update(zip(op.results, map(compacted, results), strict=True))
        names = filter(None, map(self._name, op.operands))
        name = next((name for name in names if name != LITERAL), LITERAL)
        self._names.update((value, name) for value in op.results)
        for operand in op.operands:  # free what nothing will read
            if operand in self._values and self._folded.keys() >= set(editing.users(operand)):
                del self._values[operand]
        return True

    def _value(self, value: Value) -> torch.Tensor:
        if value in self._values:
            return self._values[value]
        op = editing.producer(value)
        assert op is not None
        if op in self._views:
            return evaluate(read_op(op), [self._value(operand) for operand in op.operands])
        content = self._build.content(value)
        if content is None:  # a custom lowering emitted it
            return read_op(op).attributes["value"]
        return stored.as_stored(content, self._build.name(value))

    def _name(self, value: Value) -> str:
        if value in self._names:
            return self._names[value]
        op = editing.producer(value)
        assert op is not None
        if op in self._views:
            return self._name(op.operands[0])
        return self._build.name(value)

    def _store_results(self) -> None:
        for op in self._folded:
            for value in op.results:
                if value not in self._values or self._folded.keys() >= set(editing.users(value)):
                    continue
                with editing.at(op):
                    new = self._build.folded(self._values.pop(value), self._names[value])
                value.replace_all_uses_with(new)

    def _erase_unused(self) -> None:
        """Erase the folded ops, and the views and constants that only they read."""
        operands = {value for op in (*self._folded, *self._views) for value in op.operands}
        constants = [value for value in operands if is_constant(value)]
        for op in reversed(self._folded):
            op.erase()
        for op in reversed(self._views):
            if editing.is_unused(op):
                op.erase()
        for value in constants:
            if not is_read(value):
                value.owner.erase()


def _expand_at_run_time(op: Operation) -> None:
    """Let the program expand the operands of an op by `broadcast_to`, which is never folded."""
    dims = [int(size) for size in op.results[0].type.shape]
    with editing.before(op, editing.graph_of(op)):
        if op.name == "coreai.tile":
            editing.replace(op, [_tiled(op.operands[0], dims)])
            op.erase()
            return
        shapes = [list(operand.type.shape) for operand in op.operands]
        places = [place for place, shape in enumerate(shapes) if shape != dims]
        place = max(places, key=lambda place: _elements(op.operands[place]))
        op.operands[place] = broadcast_to(op.operands[place], dims)


def _tiled(x: Value, dims: Sequence[int]) -> Value:
    """Repeat `x` to these sizes: `[a, b]` by way of `[1, a, 1, b]` and `[n, a, m, b]`."""
    single: list[int] = []
    repeated: list[int] = []
    for total, size in zip(dims, x.type.shape, strict=True):
        is_repeated = total != size  # no axis without need: the runtime has few
        single += [1, size] if is_repeated else [size]
        repeated += [total // size, size] if is_repeated else [size]
    return reshape(broadcast_to(reshape(x, single), repeated), dims)


def _type_of(tensor: torch.Tensor) -> RankedTensorType:
    return types.tensor(tuple(tensor.shape), types.element(tensor.dtype))


def _bytes(value: Value) -> int:
    return _elements(value) * int(element_dtype(value).itemsize)


def _elements(value: Value) -> int:
    elements = 1
    for size in value.type.shape:
        elements *= size
    return elements
