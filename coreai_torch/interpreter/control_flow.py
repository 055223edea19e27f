"""Ops with regions, calls of other functions, and reads and writes of states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from ..asset.reading import Op
from ..kernels import run_source
from .plan import STRUCTURAL, ExecutionPlan, Runner, Steps, Values, Watch


@dataclass
class State:
    """A state while a program runs; the handle refers to this object."""

    content: Any


def _structural(
    name: str,
) -> Callable[[Callable[[Op, ExecutionPlan], Runner]], Callable[[Op, ExecutionPlan], Runner]]:
    def register(
        make: Callable[[Op, ExecutionPlan], Runner],
    ) -> Callable[[Op, ExecutionPlan], Runner]:
        STRUCTURAL[f"coreai.{name}"] = make
        return make

    return register


def _bind(values: Values, numbers: tuple[int, ...], given: list[Any]) -> None:
    for number, value in zip(numbers, given, strict=True):
        values[number] = value


@_structural("if")
def _if(op: Op, plan: ExecutionPlan) -> Runner:
    condition = op.operands[0]
    then, otherwise = (plan.block(region) for region in op.regions)

    def run(values: Values, watch: Watch | None) -> None:
        chosen = then if values[condition].item() else otherwise
        _bind(values, op.results, chosen(values, watch))

    return run


@_structural("while")
def _while(op: Op, plan: ExecutionPlan) -> Runner:
    before, after = (plan.block(region) for region in op.regions)

    def run(values: Values, watch: Watch | None) -> None:
        carried = [values[n] for n in op.operands]
        while True:
            _bind(values, before.arguments, carried)
            go_on, *carried = before(values, watch)
            if not go_on.item():
                break
            _bind(values, after.arguments, carried)
            carried = after(values, watch)
        _bind(values, op.results, carried)

    return run


@_structural("isolated_group")
def _isolated_group(op: Op, plan: ExecutionPlan) -> Runner:
    inside: Steps = plan.block(op.regions[0])

    def run(values: Values, watch: Watch | None) -> None:
        _bind(values, inside.arguments, [values[n] for n in op.operands])
        _bind(values, op.results, inside(values, watch))

    return run


@_structural("invoke")
def _invoke(op: Op, plan: ExecutionPlan) -> Runner:
    callee = plan.plan_of(op.attributes["callee"])

    def run(values: Values, watch: Watch | None) -> None:
        _bind(values, op.results, callee([values[n] for n in op.operands], watch))

    return run


@_structural("create_token")
@_structural("join_token")
def _token(op: Op, plan: ExecutionPlan) -> Runner:
    """Do nothing: tokens order accesses to a state, and ops run in program order anyway."""
    return lambda values, watch: None


@_structural("read_handle")
def _read_handle(op: Op, plan: ExecutionPlan) -> Runner:
    handle, result = op.operands[0], op.results[0]

    def run(values: Values, watch: Watch | None) -> None:
        values[result] = values[handle].content

    return run


@_structural("write_handle")
def _write_handle(op: Op, plan: ExecutionPlan) -> Runner:
    handle, content = op.operands[:2]

    def run(values: Values, watch: Watch | None) -> None:
        values[handle].content = values[content]

    return run


@_structural("metal4_kernel")
def _metal_kernel(op: Op, plan: ExecutionPlan) -> Runner:
    """Run the kernel in the CPU emulation of Metal, which compiles the source at the first call."""
    segments = len(op.operands) - 2 - len(op.results)
    inputs, (grid, group, *shapes) = op.operands[:segments], op.operands[segments:]
    source, name = op.attributes["kernel_source"], op.attributes["kernel_name"]

    def run(values: Values, watch: Watch | None) -> None:
        given = [values[n] for n in inputs]
        results = [
            (values[shape].tolist(), type_.dtype)
            for shape, type_ in zip(shapes, op.types, strict=True)
        ]
        made = run_source(
            source,
            name,
            [value.cpu() for value in given],
            results,
            threads_per_grid=values[grid].tolist(),
            threads_per_thread_group=values[group].tolist(),
        )
        _bind(values, op.results, [value.to(plan.device) for value in made])

    return run
