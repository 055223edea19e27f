"""Read the intermediate values of exported programs and of Core AI programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any, Literal, Protocol, TypeAlias

import torch
import torch.fx as fx
from coreai.runtime import CompileIdentifiers, IntermediateLogger, NDArray
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, InputSpec

from ..asset import reading
from ..asset.reading import DYNAMIC, Port
from ..asset.worker import to_numpy
from ..errors import ArgumentTypeError, UnknownNameError
from ..interpreter import to_torch
from ..numerics.arrays import array, tensor
from .graph import Graph, Key, graph_of_exported_program, graph_of_function, named, operation_ids
from .runtime import Executed, copied, running

Inputs: TypeAlias = "Mapping[str, Any] | Sequence[Any]"
Values: TypeAlias = "dict[Key, tuple[torch.Tensor, ...]]"
Engine: TypeAlias = Literal["runtime", "torch"]


class Inspector(Protocol):
    """Reads the values of a graph's operations."""

    graph: Graph

    async def get_intermediates_for_ops(self, ids: Collection[Any], *, inputs: Inputs) -> Values:
        """Return the results of these operations; those without a value are absent."""
        ...


class TorchInspector:
    """Reads the values that torch computes; ids are the names of FX nodes."""

    def __init__(self, model: ExportedProgram) -> None:
        self.graph = graph_of_exported_program(model)
        self.program = model

    async def get_intermediates_for_ops(self, ids: Collection[Any], *, inputs: Inputs) -> Values:
        """Return the results of these nodes."""
        _check_ids(ids, self.graph)
        return values_of_nodes(self.program, inputs, set(ids).__contains__)


TorchFXInspector = TorchInspector  # the name in the published converter


class CachingInspector:
    """Remembers the values that another inspector read, as long as the inputs are the same."""

    def __init__(self, inspector: Inspector) -> None:
        self.graph, self._inspector = inspector.graph, inspector
        self.clear_cache()

    def clear_cache(self) -> None:
        """Forget all values."""
        self._inputs: Inputs | None = None
        self._values: Values = {}
        self._asked: set[Any] = set()

    async def get_intermediates_for_ops(self, ids: Collection[Any], *, inputs: Inputs) -> Values:
        """Return the results of these operations; only unknown ones are read."""
        if inputs is not self._inputs:  # an equal copy would have to be compared element by element
            self.clear_cache()
            self._inputs = inputs
        new = [key for key in ids if key not in self._asked]
        if new:
            found = await self._inspector.get_intermediates_for_ops(new, inputs=inputs)
            self._values.update(found)
            self._asked.update(new)
        return {key: self._values[key] for key in ids if key in self._values}


def values_of_nodes(
    program: ExportedProgram, inputs: Inputs, wanted: Callable[[str], bool]
) -> Values:
    """Run the program and return the tensors of the nodes whose names are wanted."""
    found: Values = {}

    class Run(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
        def run_node(self, n: fx.Node) -> Any:
            value = super().run_node(n)
            if n.op != "output" and wanted(n.name) and (results := tuple(_tensors(value))):
                found[n.name] = results
            return value

    with torch.no_grad():
        Run(program.graph_module).run(*placeholders(program, inputs), enable_io_processing=False)
    return found


def placeholders(program: ExportedProgram, inputs: Inputs) -> list[Any]:
    """Return the values of all placeholders of the graph, as copies."""
    specs = program.graph_signature.input_specs
    given = named(inputs, names_of_inputs(program))
    state = {**program.constants, **program.state_dict}
    return [_copy(given[s.arg.name] if _is_given(s) else _fixed(s, state)) for s in specs]


def names_of_inputs(program: ExportedProgram) -> list[str]:
    """Return the names of the tensor arguments, those that the model writes to included."""
    return [s.arg.name for s in program.graph_signature.input_specs if _is_given(s)]


def _is_given(spec: InputSpec) -> bool:
    return spec.kind is InputKind.USER_INPUT and not isinstance(spec.arg, ConstantArgument)


def _fixed(spec: InputSpec, state: Mapping[str, Any]) -> Any:
    """Return the value of a constant argument, a parameter or a buffer."""
    if isinstance(spec.arg, ConstantArgument):
        return spec.arg.value
    if spec.target not in state:
        raise ValueError(
            f"the input {spec.arg.name!r} is a {spec.kind.name}, which has no stored value"
        )
    return state[spec.target]


def _copy(value: Any) -> Any:
    """Return a copy as a tensor: the graph may write to it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, NDArray):
        return tensor(to_numpy(value))
    return torch.as_tensor(value) if hasattr(value, "__array__") else value


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, torch.Tensor):
            yield part.detach().clone()


class CoreAIInspector:
    """Reads the values of a Core AI program; ids are those of its operations.

    The runtime gives no value for an op that it compiles away (a `reshape`, for example), for a
    branch or a loop, and inside a graph that is called more than once. `engine="torch"` runs the
    program with `to_torch` and gives all values. An op that runs several times gives its last
    results. `states` are the initial states; the default is zeros.
    """

    def __init__(
        self,
        model: reading.Source,
        function_name: str = "main",
        *,
        engine: Engine = "runtime",
        states: Mapping[str, Any] | None = None,
    ) -> None:
        self._model, self._function, self._engine = model, function_name, engine
        self._read = reading.read(model)
        self.graph = graph_of_function(self._read, function_name)
        self._states = dict(states or {})
        self._numbered = operation_ids(self._read)
        self._called = dict(_called_once(self._read))
        self._constants: dict[int, torch.Tensor] = {
            n: op.attributes["value"] for _, op, n in self._numbered if op.name == "coreai.constant"
        }

    async def get_intermediates_for_ops(
        self, ids: Collection[Any], *, inputs: Inputs, states: Mapping[str, Any] | None = None
    ) -> Values:
        """Return the results of these operations; `states` are the initial states of this call."""
        _check_ids(ids, self.graph, {number for _, _, number in self._numbered})
        given, initial = self.feeds(inputs, states)
        found: Values = {p: (torch.as_tensor(given[p]),) for p in ids if p in given}
        found |= {n: (value,) for n, value in self._constants.items() if n in ids}
        left = [key for key in ids if key not in found and not isinstance(key, str)]
        if left:
            run = self._on_runtime if self._engine == "runtime" else self._in_torch
            found |= await run(left, given, initial)
        return found

    @property
    def names_of_states(self) -> list[str]:
        """The names of the function's states, in order."""
        ports = self._read.functions[self._function].inputs
        return [p.name for p in ports if p.type.kind == "handle"]

    def feeds(
        self, inputs: Inputs, states: Mapping[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        """Return the inputs of a call by name, and its initial states."""
        ports = self._read.functions[self._function].inputs
        given = named(inputs, [p.name for p in ports if p.type.kind != "handle"])
        known = {**self._states, **(states or {})}
        initial = {p.name: _state(p, known) for p in ports if p.type.kind == "handle"}
        return {name: _copy(value) for name, value in given.items()}, initial

    async def _in_torch(
        self, ids: Sequence[int], given: Mapping[str, Any], states: dict[str, Any]
    ) -> Values:
        module = to_torch(self._model)
        keys = {id(op): number for _, op, number in operation_ids(module.program)}
        wanted, found = set(ids), dict[Key, tuple[torch.Tensor, ...]]()

        def watch(event: Any) -> None:
            if keys[id(event.op)] in wanted and (results := tuple(_tensors(event.results))):
                found[keys[id(event.op)]] = results

        module.function(self._function)(given, state=states, watch=watch)
        return found

    async def _on_runtime(
        self, ids: Sequence[int], given: Mapping[str, Any], states: Mapping[str, Any]
    ) -> Values:
        tensors = {n: _tensor_results(op) for _, op, n in self._numbered}
        makers = {(i, k): self._maker(i, k) for i in ids for k in tensors[i]}
        operations = {operation for operation, _ in makers.values()}
        logged: dict[tuple[int, int], torch.Tensor] = {}
        failures: list[Exception] = []

        async with running(self._model, self._read) as session:
            steps = {n: e for n, e in session.executed.items() if e.operation in operations}

            def log(values: Sequence[Any], kind: str, identifiers: CompileIdentifiers) -> None:
                try:  # an exception in the callback would crash the runtime
                    if kind == "output":
                        logged.update(_logged(steps[identifiers.id], values))
                except Exception as failure:
                    failures.append(failure)

            if not steps:  # the runtime compiled all of them away
                return {}
            logger = IntermediateLogger([CompileIdentifiers(n) for n in steps], log)
            function = session.load(self._function, intermediate_logger=logger)
            feeds = {name: NDArray(array(value)) for name, value in given.items()}
            handles = {name: NDArray(array(value)) for name, value in states.items()}
            await (function(feeds, state=handles) if handles else function(feeds))
        if failures:
            raise failures[0]
        found: Values = {}
        for number in ids:
            results = [logged.get(makers[number, k]) for k in tensors[number]]
            if results and all(r is not None for r in results):
                found[number] = tuple(r for r in results if r is not None)
        return found

    def _maker(self, operation: int, output: int) -> tuple[int, int]:
        """Return the op inside a called graph that computes a call's result."""
        while (operation, output) in self._called:
            operation, output = self._called[operation, output]
        return operation, output


def _state(port: Port, known: Mapping[str, Any]) -> torch.Tensor:
    if port.name in known:
        return torch.as_tensor(_copy(known[port.name]))
    if DYNAMIC in port.type.shape:
        raise ValueError(
            f"state {port.name!r} is {port.type}, which has dynamic sizes\n"
            f"  try   pass CoreAIInspector(..., states={{{port.name!r}: ...}})"
        )
    return torch.zeros(port.type.shape, dtype=port.type.dtype)


def _tensor_results(op: reading.Op) -> list[int]:
    return [k for k, type_ in enumerate(op.types) if type_.kind == "tensor"]


def _logged(
    executed: Executed, values: Sequence[Any]
) -> Iterator[tuple[tuple[int, int], torch.Tensor]]:
    """Yield the values of an executed step by operation and output.

    A step that stands for no operation, such as the zero that a `relu` compares with, gives none.
    """
    if executed.operation is None:
        return
    for mine, output in executed.makes:
        if mine < len(values) and values[mine] is not None:
            yield (executed.operation, output), tensor(copied(values[mine]))


def _called_once(program: reading.Program) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Map the results of calls to the ops that compute them, for graphs that are called once."""
    numbered = operation_ids(program)
    calls = [(op, number) for _, op, number in numbered if op.name == "coreai.invoke"]
    count = Counter(op.attributes["callee"] for op, _ in calls)
    ids = {id(op): number for _, op, number in numbered}
    for call, number in calls:
        callee = call.attributes["callee"]
        if count[callee] > 1:
            continue
        body = program.functions[callee].body
        made = {v: (ids[id(op)], k) for op in body.ops for k, v in enumerate(op.results)}
        for output, value in enumerate(body.ops[-1].operands):
            if value in made:
                yield (number, output), made[value]


def _check_ids(ids: Collection[Any], graph: Graph, more: Collection[Any] = ()) -> None:
    """Raise for ids that neither the graph nor `more` has."""
    if not isinstance(ids, Collection):
        raise ArgumentTypeError(
            f"ids is {ids!r}, not a list\n  try   pass a list of keys of `graph`"
        )
    unknown = [key for key in ids if key not in graph.by_key and key not in more]
    if unknown:
        raise UnknownNameError(f"there are no operations {unknown}\n  try   pass keys of `graph`")
