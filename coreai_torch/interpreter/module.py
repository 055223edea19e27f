"""A Core AI program as a torch module with named inputs and persistent states."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..asset import reading
from ..asset.reading import DYNAMIC, Block, Op, Port, Program
from ..errors import (
    ArgumentTypeError,
    ConversionError,
    RunError,
    UnknownNameError,
    UnsupportedOpError,
)
from ..formatting import counted
from ..ir.types import narrow
from . import registry
from .control_flow import State
from .devices import full_precision
from .plan import STRUCTURAL, ExecutionPlan, Plans, Watch, memory_of

Memory = tuple[int, int, torch.dtype, torch.Size, tuple[int, ...]]


class Constants(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """One buffer for each constant; constants that share memory share a buffer.

    The entrypoints of an asset read the same weights from one mapped file, and would otherwise
    each copy them to the device.
    """

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._places: dict[tuple[str, int], str] = {}
        known: dict[Memory, str] = {}
        for function in program.functions.values():
            for op in _constant_ops(function.body):
                value = op.attributes["value"]
                name = known.setdefault(_memory(value), f"constant_{len(known)}")
                self._places[function.name, op.results[0]] = name
                self.register_buffer(name, value, persistent=False)
        # A program without constants has a device as well.
        self.register_buffer("placeholder", torch.empty(0), persistent=False)

    @property
    def device(self) -> torch.device:
        """The device of all constants."""
        device: torch.device = self.placeholder.device
        return device

    def value(self, function: str, op: Op) -> torch.Tensor:
        """Return the value of a constant op of a function."""
        value: torch.Tensor = self.get_buffer(self._places[function, op.results[0]])
        return value


def _memory(value: torch.Tensor) -> Memory:
    # Tensors without elements all have the address 0.
    address = value.data_ptr() if value.numel() else id(value)
    return address, value.numel(), value.dtype, value.shape, value.stride()


def _constant_ops(block: Block) -> Iterator[Op]:
    for op in block.ops:
        if op.name == "coreai.constant":
            yield op
        for region in op.regions:
            yield from _constant_ops(region)


_ENDS = {"coreai.output", "coreai.yield", "coreai.condition", "coreai.constant"}


def to_torch(source: reading.Source) -> Module:
    """Load any Core AI program as a torch module that computes the same.

    ```python
    module = coreai_torch.to_torch("linear.aimodel")
    y = module(x)["y"]
    ```

    The constants are buffers, so that `.to("cuda")` moves the program to a GPU. Inputs follow it,
    and the outputs are on its device.

    Args:
        source: an `AIProgram`, an `AIModelAsset` or the path of an `.aimodel`.
    """
    return Module(reading.read(source))


class Function:
    """An entrypoint: takes inputs by name and returns outputs by name, in order."""

    def __init__(self, module: Module, function: reading.Function) -> None:
        self._module, self._function = module, function
        self.name = function.name
        self.inputs = {p.name: p.type for p in function.inputs if p.type.kind != "handle"}
        self.states = {p.name: p.type for p in function.inputs if p.type.kind == "handle"}
        self.outputs = {p.name: p.type for p in function.outputs if p.type.kind != "token"}

    def __call__(
        self,
        inputs: Mapping[str, Any] | None = None,
        *,
        state: dict[str, Any] | None = None,
        watch: Watch | None = None,
    ) -> dict[str, torch.Tensor]:
        """Run the function and return its outputs.

        `state` has a tensor or array for each state and is updated in place; without it the
        module's own states are used, which start as zeros. `watch` is called after every op.
        """
        given = dict(inputs or {})
        _check_names("inputs", self.inputs, given)
        states = self._module.states if state is None else state
        if state is not None:
            _check_names("states", self.states, state)
        boxes = {n: State(self._content(n, t, states)) for n, t in self.states.items()}
        device = self._module.device
        arguments = [
            boxes[p.name] if p.name in boxes else _tensor(p, given[p.name], device)
            for p in self._function.inputs
        ]
        before = {name: box.content for name, box in boxes.items()}
        plan = self._module.plan(self.name, is_watched=watch is not None)
        with torch.no_grad(), full_precision(device):
            results = plan(arguments, watch)
            taken = {*plan.memory, *map(memory_of, before.values()), *map(memory_of, arguments)}
            written = {n: b.content for n, b in boxes.items() if b.content is not before[n]}
            # The program may swap two states: copy all new contents before storing the first.
            copies = {name: _owned(content, taken) for name, content in written.items()}
            outputs = self._named(results, taken)
            for name, content in copies.items():
                _store(states, name, content, in_place=state is not None)
        return outputs

    def _named(self, results: Sequence[Any], taken: set[int]) -> dict[str, torch.Tensor]:
        ports = zip(self._function.outputs, results, strict=True)
        return {p.name: _owned(value, taken) for p, value in ports if p.type.kind != "token"}

    def _content(self, name: str, type_: reading.Type, states: dict[str, Any]) -> torch.Tensor:
        """Return the tensor of a state; a missing one becomes zeros."""
        if name not in states:
            if DYNAMIC in type_.shape:
                raise ConversionError(
                    f"state {name!r} is {type_}, which has dynamic sizes\n"
                    f"  try   pass state={{{name!r}: ...}}"
                )
            device = self._module.device
            states[name] = torch.zeros(type_.shape, dtype=type_.dtype, device=device)
        return _tensor(Port(name, type_), states[name], self._module.device)


class Module(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A program that torch runs; `forward` is the entrypoint `main`, or the first one."""

    def __init__(self, program: reading.Program) -> None:
        super().__init__()
        self.program = program
        self.states: dict[str, Any] = {}
        entrypoints = [f for f in program.functions.values() if not f.is_private]
        _check(program, entrypoints)
        self.constants = Constants(program)
        self._functions = {f.name: Function(self, f) for f in entrypoints}
        self._plan_again()

    @property
    def device(self) -> torch.device:
        """The device that runs the program."""
        return self.constants.device

    def _plan_again(self) -> None:
        """Forget the compiled functions, whose templates have tensors of the last device."""
        known, constant = self.program.functions, self.constants.value
        self._plans = Plans(known, constant, self.device, fold=True)
        self._watched = Plans(known, constant, self.device, fold=False)

    def _apply(self, move: Callable[[torch.Tensor], torch.Tensor], *args: Any) -> Module:
        """Move constants and states to another device; reject another dtype."""
        if move(torch.zeros(1)).dtype != torch.float32:
            raise ConversionError(
                "the dtypes of a program cannot change\n"
                "  try   convert the model in the other dtype, or pass a device only"
            )
        super()._apply(move, *args)
        self.states = {name: move(_as_tensor(value)) for name, value in self.states.items()}
        self._plan_again()
        return self

    @property
    def functions(self) -> Mapping[str, Function]:
        """The entrypoints by name."""
        return self._functions

    def function(self, name: str) -> Function:
        """Return the entrypoint of this name."""
        if name not in self._functions:
            raise UnknownNameError(
                f"there is no entrypoint {name!r}; the program has {list(self._functions)}"
            )
        return self._functions[name]

    def plan(self, name: str, *, is_watched: bool) -> ExecutionPlan:
        """Return a function's plan; a watched one runs every op at every call, without folding."""
        return (self._watched if is_watched else self._plans)(name)

    def reset(self) -> None:
        """Clear the states: the next call starts from zeros."""
        self.states.clear()

    def forward(self, *inputs: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return the outputs by name; pass inputs in order, by keyword or as a mapping."""
        function = self._functions.get("main") or next(iter(self._functions.values()))
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            return function({**inputs[0], **named})
        if len(inputs) > len(function.inputs):
            raise ArgumentTypeError(
                f"{function.name!r} takes {len(function.inputs)} inputs, but got {len(inputs)}"
            )
        return function({**dict(zip(function.inputs, inputs, strict=False)), **named})


def _owned(value: torch.Tensor, taken: set[int]) -> torch.Tensor:
    """Return the value, copied if it shares memory with an input, a constant or a result."""
    owned = value.clone() if memory_of(value) in taken else value
    owned = owned.contiguous()
    taken.add(memory_of(owned))
    return owned


def _store(states: dict[str, Any], name: str, content: torch.Tensor, *, in_place: bool) -> None:
    """Store the new content of a state, in place if its shape is unchanged."""
    old = states[name]
    if not in_place or old.shape != content.shape:
        states[name] = content
    elif isinstance(old, np.ndarray):
        old[...] = _array(content, old.dtype)
    else:
        old.copy_(content)


def _array(x: torch.Tensor, dtype: Any) -> Any:
    return (x.view(torch.int16) if x.dtype == torch.bfloat16 else x).cpu().numpy().view(dtype)


def _check_names(what: str, wanted: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    missing = [n for n in wanted if n not in given]
    unknown = [n for n in given if n not in wanted]
    if missing or unknown:
        raise ArgumentTypeError(
            f"the {what} are {list(wanted)}; missing {missing}, unknown {unknown}"
        )


def _tensor(port: Port, value: Any, device: torch.device) -> torch.Tensor:
    """Return an input in the program's dtype: narrow 64 bits, and raise if it does not fit."""
    tensor = _as_tensor(value).detach()
    wanted = port.type.dtype
    if tensor.dtype != wanted:
        if narrow(tensor.dtype) != wanted:
            raise ArgumentTypeError(
                f"{port.name!r} is {port.type}, but a tensor of {tensor.dtype} was given"
            )
        narrowed = tensor.to(wanted)
        if not wanted.is_floating_point and bool((narrowed.to(tensor.dtype) != tensor).any()):
            raise ConversionError(f"{port.name!r} has values out of the range of {wanted}")
        tensor = narrowed
    sizes = port.type.shape
    if len(sizes) != tensor.dim() or any(
        s not in (DYNAMIC, n) for s, n in zip(sizes, tensor.shape, strict=True)
    ):
        raise ConversionError(
            f"{port.name!r} is {port.type}, but sizes {list(tensor.shape)} were given"
        )
    return tensor.to(device)


def _as_tensor(value: Any) -> torch.Tensor:
    if isinstance(value, torch.Tensor):
        return value
    array = np.asarray(value)
    if array.dtype.kind in "OSU":
        raise ArgumentTypeError(
            f"an input is a {type(value).__name__}\n  try   pass a tensor or array"
        )
    if array.dtype.name == "bfloat16":  # a dtype of ml_dtypes
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.as_tensor(array)


def known_ops() -> frozenset[str]:
    """Return the names of the ops that can run."""
    return registry.known() | frozenset(STRUCTURAL) | _ENDS


def _check(program: reading.Program, entrypoints: Sequence[reading.Function]) -> None:
    """Raise if the program has unsupported ops, naming all of them."""
    known = known_ops()
    unknown: Counter[str] = Counter()
    first: dict[str, Op] = {}
    seen: set[str] = set()

    def look(block: Block) -> None:
        for op in block.ops:
            if op.name == "coreai.invoke":
                visit(op.attributes["callee"])
            if op.name not in known:
                unknown[op.name] += 1
                first.setdefault(op.name, op)
            for region in op.regions:
                look(region)

    def visit(name: str) -> None:
        if name not in seen:
            seen.add(name)
            look(program.functions[name].body)

    for function in entrypoints:
        visit(function.name)
    if unknown:
        lines = [
            f"torch cannot run {name}, which is used {counted(count, 'time')}\n"
            f"  at    {first[name].place or 'an unknown place'}"
            for name, count in sorted(unknown.items())
        ]
        raise UnsupportedOpError("\n".join(lines))


__all__ = ["Function", "Module", "RunError", "known_ops", "to_torch"]
