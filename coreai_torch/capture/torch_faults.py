"""Results that some versions of torch describe wrongly in an exported program.

An exported graph carries the shape and dtype of every result, computed by torch's fake kernels.
A few of these kernels are wrong in old versions. A result that is only returned is described
correctly here, in place; one that further ops read is rejected, because they were traced with the
wrong description.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ..errors import TorchFaultError, describe, target_name
from ..torch_compat import aten

# The right description of results by their index, for the results that torch describes wrongly.
Corrections = dict[int, torch.Tensor]


@dataclass(frozen=True)
class Fault:
    """Overloads that torch describes wrongly, and how."""

    targets: tuple[Any, ...]
    problem: str
    versions: str  # the versions that have the fault
    hint: str
    correct: Callable[[fx.Node], Corrections]


def _lstm_states(node: fx.Node) -> Corrections:
    """The final states have four axes, `[layers, 1, batch, features]`, in place of three."""
    results = node.meta["val"]
    wrong = [i for i in (1, 2) if results[i].dim() == 4]
    return {i: results[i].squeeze(1) for i in wrong}


def _unique_counts(node: fx.Node) -> Corrections:
    """Inverse indices and counts have the dtype of the values in place of int64."""
    results = node.meta["val"]
    wrong = [i for i, r in enumerate(results) if i and r.dtype != torch.int64]
    return {i: results[i].to(torch.int64) for i in wrong}


def _bincount(node: fx.Node) -> Corrections:
    """Counts have the dtype of the input, in place of int64 or the dtype of the weights."""
    weights: Any = node.args[1] if len(node.args) > 1 else node.kwargs.get("weights")
    right = torch.int64
    if weights is not None:
        single = weights.meta["val"].dtype == torch.float32
        right = torch.float32 if single else torch.float64
    counts = node.meta["val"]
    return {} if counts.dtype == right else {0: counts.to(right)}


FAULTS = (
    Fault(
        (aten.lstm.input,),
        "describes the final states of an LSTM with four axes",
        "2.12 and before",
        "export with coreai_torch.convert, which corrects it, or with torch 2.13 or later",
        _lstm_states,
    ),
    Fault(
        (aten._unique2.default, aten.unique_dim.default, aten.unique_consecutive.default),
        "describes the counts and inverse indices of unique with the dtype of its values",
        "2.11 and before",
        "export with torch 2.12 or later",
        _unique_counts,
    ),
    Fault(
        (aten.bincount.default,),
        "describes the dtype of bincount wrongly",
        "2.11 and before",
        "export with torch 2.12 or later",
        _bincount,
    ),
)
_BY_TARGET = {target: fault for fault in FAULTS for target in fault.targets}


def same_sizes(one: Sequence[Any], other: Sequence[Any]) -> bool:
    """Return whether two shapes have the same rank and no static size differs."""
    return len(one) == len(other) and all(
        a == b for a, b in zip(one, other, strict=True) if isinstance(a, int) and isinstance(b, int)
    )


def _check_write(node: fx.Node) -> None:
    """Raise if a part of a tensor is written in another shape: `torch.arange(6, out=x[:, 1:])`."""
    if node.target not in (aten.slice_scatter.default, aten.select_scatter.default):
        return
    into, source = (node.args[i].meta["val"] for i in (0, 1))
    axis = (node.args[2] if len(node.args) > 2 else node.kwargs.get("dim", 0)) % into.dim()
    want, have = list(into.shape), list(source.shape)
    if node.target is aten.select_scatter.default:
        del want[axis]
    elif len(want) == len(have):
        want[axis] = have[axis]
    if not same_sizes(want, have):
        raise TorchFaultError(
            describe(
                node,
                f"a result of the shape {have} is written to a part of a tensor of the shape "
                f"{list(into.shape)}: torch.export describes the result of out= wrongly",
                "export with coreai_torch.convert, or write part.copy_(result.reshape(part.shape)) "
                "instead of out=part",
            )
        )


def repair(calls: Iterable[fx.Node]) -> None:
    """Correct the description of results that are only returned; raise for those that are read."""
    for node in calls:
        _check_write(node)
        fault = _BY_TARGET.get(node.target)
        corrections = fault.correct(node) if fault else {}
        if fault and corrections:
            _apply(node, fault, corrections)


def _apply(node: fx.Node, fault: Fault, corrections: Corrections) -> None:
    results = node.meta["val"]
    for index, right in corrections.items():
        items = list(_items(node, index))
        if any(_is_misled(user, right, item) for item in items for user in item.users):
            problem = f"torch {torch.__version__} {fault.problem} (a fault of {fault.versions})"
            raise TorchFaultError(
                describe(node, f"{problem}; {target_name(node.target)} is read here", fault.hint)
            )
        for item in items:
            item.meta["val"] = right
    if isinstance(results, tuple | list):
        node.meta["val"] = tuple(corrections.get(i, r) for i, r in enumerate(results))


def _items(node: fx.Node, index: int) -> Iterator[fx.Node]:
    """Yield the nodes that stand for one result."""
    if not isinstance(node.meta["val"], tuple | list):
        yield node
        return
    for user in node.users:
        if user.target is operator.getitem and user.args[1] == index:
            yield user


def _is_misled(user: fx.Node, right: torch.Tensor, item: fx.Node) -> bool:
    """Return whether an op was traced with a wrong description that matters to it."""
    same_shape = right.dim() == item.meta["val"].dim()
    reads_size = user.target is aten.sym_size.int
    return user.op != "output" and not (same_shape and reads_size)
