"""Lower `cond`, `while_loop`, `scan` and `map`; the same walker lowers their subgraphs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx as fx

from ..ir import dialect as cai
from ..ir import graph, shapes, types
from ..ir.dialect import Dim, RankedTensorType, Value
from ..lowering import Ctx, lowers_function
from ..passes.fold_constants import fold_constants
from ..passes.pass_graph import captured
from ._lib.stacked_steps import Stacking, stacked_steps

higher_order = torch.ops.higher_order


def _value(value: Any, type_: RankedTensorType) -> Value:
    """Return an operand or result of a subgraph as a value of the type in the exported graph."""
    if isinstance(value, torch.Tensor):
        value = cai.tensor_constant(value)
    elif not isinstance(value, Value):
        value = cai.constant(value, types.dtype_of(type_))
    return cai.refine(cai.cast(value, types.dtype_of(type_)), type_)


def _values(values: Sequence[Any], promised: Sequence[RankedTensorType]) -> list[Value]:
    return [_value(v, t) for v, t in zip(values, promised, strict=True)]


@lowers_function(higher_order.cond)
def cond(
    ctx: Ctx, pred: Any, true_fn: fx.GraphModule, false_fn: fx.GraphModule, operands: Any = ()
) -> list[Value]:
    promised = ctx.outs
    if not isinstance(pred, Value):
        return _values(ctx.lower_subgraph(true_fn if pred else false_fn, operands), promised)
    condition = cai.cast(shapes.scalar(pred), torch.bool)
    # The runtime cannot branch between two constants: select them with `where`.
    known = [_constant_results(f, operands) for f in (true_fn, false_fn)]
    fixed = [i for i in range(len(promised)) if i in known[0] and i in known[1]]
    open_ = [i for i in range(len(promised)) if i not in fixed]
    results: dict[int, Value] = {
        i: cai.where(condition, *(_value(k[i], promised[i]) for k in known)) for i in fixed
    }

    def branch(module: fx.GraphModule) -> Callable[[], list[Value]]:
        def body() -> list[Value]:
            values = ctx.lower_subgraph(module, operands)
            return [_value(values[i], promised[i]) for i in open_]

        return body

    if open_:
        chosen = graph.branch(
            condition, [promised[i] for i in open_], branch(true_fn), branch(false_fn)
        )
        results.update(zip(open_, chosen, strict=True))
    return [results[i] for i in range(len(promised))]


@lowers_function(higher_order.while_loop)
def while_loop(
    ctx: Ctx,
    cond_fn: fx.GraphModule,
    body_fn: fx.GraphModule,
    carried_inputs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> list[Value]:
    promised = ctx.outs

    def condition(carried: Sequence[Value]) -> Value:
        (going_on,) = ctx.lower_subgraph(cond_fn, [*carried, *additional_inputs])
        if not isinstance(going_on, Value):
            going_on = cai.tensor_constant(torch.as_tensor(going_on))
        return cai.cast(shapes.scalar(going_on), torch.bool)

    def body(carried: Sequence[Value]) -> list[Value]:
        return _values(ctx.lower_subgraph(body_fn, [*carried, *additional_inputs]), promised)

    return graph.loop(_values(carried_inputs, promised), condition, body)


@lowers_function(higher_order.scan)
def scan(
    ctx: Ctx,
    combine_fn: fx.GraphModule,
    init: Sequence[Any],
    xs: Sequence[Any],
    additional_inputs: Sequence[Any] = (),
) -> list[Value]:
    return over_leading_axis(ctx, combine_fn, init, xs, additional_inputs, stacked_steps)


@lowers_function(higher_order.map_impl)
def map_(
    ctx: Ctx, f: fx.GraphModule, xs: Sequence[Any], pos_args: Sequence[Any] = ()
) -> list[Value]:
    return over_leading_axis(ctx, f, [], xs, pos_args, stacked_steps)


def over_leading_axis(
    ctx: Ctx,
    step: fx.GraphModule,
    init: Sequence[Any],
    xs: Sequence[Any],
    given_whole: Sequence[Any],
    stack: Stacking,
) -> list[Value]:
    """Loop over the slices of `xs`; stack the results that are not carried."""
    carried_types, stacked_types = ctx.outs[: len(init)], ctx.outs[len(init) :]
    given = [x if isinstance(x, Value) else cai.tensor_constant(x) for x in xs]
    first, length = _values(init, carried_types), cai.size(given[0], 0)
    row_types = [RankedTensorType.get(t.shape[1:], t.element_type) for t in stacked_types]

    def rows_at(index: Value, carried: Sequence[Value]) -> tuple[list[Value], list[Value]]:
        given_rows = [_row(x, index) for x in given]
        found = ctx.lower_subgraph(step, [*carried, *given_rows, *given_whole])
        return _values(found[: len(init)], carried_types), _values(found[len(init) :], row_types)

    sizes: list[Sequence[Dim]] = [t.shape for t in row_types]
    if any(types.DYNAMIC in s for s in sizes):  # run one step before the loop to compute them
        sizes = [cai.sizes(row) for row in rows_at(cai.i32(0), first)[1]]

    def empty(count: Dim) -> list[Value]:
        return [_stack(t, [count, *s]) for t, s in zip(row_types, sizes, strict=True)]

    last, stacks = stack(length, first, empty, rows_at)
    return [*last, *(cai.refine(s, t) for s, t in zip(stacks, stacked_types, strict=True))]


def _stack(row: RankedTensorType, dims: Sequence[Dim]) -> Value:
    """Return zeros to be overwritten row by row."""
    count = dims[0] if isinstance(dims[0], int) else types.DYNAMIC
    zero = cai.constant(0, types.dtype_of(row))
    type_ = types.tensor([count, *row.shape], row.element_type)
    return cai.refine(cai.broadcast_to(zero, dims), type_)


def _row(x: Value, index: Value) -> Value:
    one = cai.slice_axis(x, 0, index, shapes.add(index, 1))
    return cai.reshape(one, cai.sizes(x)[1:])


def _constant_results(branch: fx.GraphModule, operands: Sequence[Any]) -> dict[int, Any]:
    """Return the results that are the same at every run, by position."""
    graph = fold_constants(captured(branch, operands))
    return {
        place: graph.constants[result] if isinstance(result, fx.Node) else result
        for place, result in enumerate(graph.results)
        if not isinstance(result, fx.Node) or result in graph.constants
    }
