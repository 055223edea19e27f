"""States of an entry point as tensors: the form that shapes and constraints are set on.

The converter emits a state as a handle that is read once and written once. Up to coreai-core
1.0.0b3, `enumerated-shape-entry-points-from-arg-attrs` fails on a handle ("has a
coreai.enumerated_shapes but is not a ranked tensor"), and `set_hardware_constraints` of 1.0.0b2
reads its shape. The compiler's rewrite turns the tensors back into handles at its end.

Programs written for the published converter 0.4.x look up a graph before `optimize()` and expect
the tensors too: executorch 1.5.1 compares their types with those of its delegate.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from coreai._compiler.dialects import coreai as _coreai
from coreai._compiler.ir import Attribute, DictAttr, StringAttr
from coreai._compiler.passmanager import PassManager
from coreai.authoring import AIProgram

MUTATION = "MutableBuffers.buffer_mutation"  # on an argument: the name of its new value
NAME = "coreai.name"
SHAPES = "coreai.enumerated_shapes"
AS_TENSORS = "_states_as_tensors"  # an attribute of a program after `graph_with_tensors`
OPTIMIZES_ON_REQUEST = hasattr(AIProgram, "optimize")  # 1.0.0b2; later versions have no method
# `get_graph` in 1.0.0b2, `_get_graph` in 1.0.0b3; `asset.extension` adds the other one.
LOOK_UP = AIProgram._get_graph if hasattr(AIProgram, "_get_graph") else AIProgram.get_graph


def find_graph(program: AIProgram, name: str) -> Any:
    """Return the graph of an entry point."""
    graph = LOOK_UP(program, name)
    if graph is None:
        raise ValueError(f"graph {name!r} not found in program")
    return graph


def graph_with_tensors(program: AIProgram, name: str) -> Any:
    """Return the graph of an entry point with its states as tensors.

    `restore_handles` undoes it before the module is used. After `optimize()` the states stay
    handles.
    """
    graph = find_graph(program, name)
    with graph.operation.context:
        if all(_is_read_and_written(handle) for handle in _handles(graph)) and to_tensors(graph):
            setattr(program, AS_TENSORS, True)
    return graph


def restore_handles(program: AIProgram) -> None:
    """Make handles of the states that `graph_with_tensors` made tensors."""
    if vars(program).pop(AS_TENSORS, False):
        to_handles(stored_module(program))


def stored_module(program: AIProgram) -> Any:
    """Return the raw module as it is stored; `mlir_module_of` restores handles first."""
    return program._module._mlir_module if hasattr(program, "_module") else program._mlir_module


def set_shapes(graph: Any, config: Mapping[str, Mapping[str, Sequence[int]]]) -> None:
    """Record static shapes of inputs and states, for the compiler's rewrite to expand."""
    with graph.operation.context:
        to_tensors(graph)
        types = list(graph.operation.regions[0].blocks[0].arguments)
        pairs = zip(graph.arg_attrs, types, strict=True)
        graph.arg_attrs = [_with_shapes(a, value.type, config) for a, value in pairs]


def _with_shapes(
    attributes: Any, type_: Any, config: Mapping[str, Mapping[str, Sequence[int]]]
) -> Attribute:
    name = name_of(attributes)
    shapes = {
        key: shape for key, named in config.items() for n, shape in named.items() if n == name
    }
    for shape in shapes.values():
        if len(shape) != type_.rank or not all(size > 0 for size in shape):
            raise RuntimeError(
                f"the static shape {list(shape)} of {name!r} does not fit {type_}\n"
                f"  try   pass {type_.rank} sizes greater than 0"
            )
    if not shapes:
        return attributes
    listed = ", ".join(f"{key} = [{', '.join(map(str, s))}]" for key, s in shapes.items())
    shaped = {SHAPES: Attribute.parse(f"{{{listed}}}")}
    return DictAttr.get({**entries(attributes), **shaped})


def has_shapes(graph: Any) -> bool:
    """Return whether static shapes were recorded and the rewrite did not expand them yet."""
    return any(SHAPES in entries(attributes) for attributes in graph.arg_attrs)


def to_handles(module: Any) -> None:
    """Make handles of the states that `to_tensors` made tensors."""
    with module.context:
        PassManager.parse("builtin.module(update-signature-to-handles)").run(module.operation)


def to_tensors(graph: Any) -> bool:
    """Make each state an argument and a result of the graph, connected by an attribute.

    Return whether the graph has such a state.
    """
    block, handles = graph.operation.regions[0].blocks[0], _handles(graph)
    if not handles:
        return False
    output = list(block.operations)[-1].operation
    calls = [_read_and_write(handle) for handle in handles]
    names = [entries(attributes) for attributes in graph.arg_attrs]
    for handle, (read, write) in zip(handles, calls, strict=True):
        place = list(output.operands).index(write.results[0])
        names[handle.arg_number][MUTATION] = entries(graph.res_attrs[place])[NAME]
        output.operands[place] = write.operands[1]
        token = read.operands[1].owner
        handle.set_type(read.results[0].type)
        write.erase()
        read.results[0].replace_all_uses_with(handle)
        read.erase()
        token.erase()
    from ..ir.graph import update_signature  # needs torch, which `asset.worker` starts without

    update_signature(graph.operation)
    graph.arg_attrs = [DictAttr.get(one) for one in names]
    return True


def entries(attributes: Any) -> dict[str, Attribute]:
    """Return the attributes of an argument or a result by name."""
    return {entry.name: entry.attr for entry in attributes}


def name_of(attributes: Any) -> str | None:
    """Return the name of an argument or a result."""
    found = entries(attributes).get(NAME)
    return None if found is None else str(StringAttr(found).value)


def _handles(graph: Any) -> list[Any]:
    arguments = graph.operation.regions[0].blocks[0].arguments
    return [a for a in arguments if isinstance(a.type, _coreai.HandleType)]


def _is_read_and_written(handle: Any) -> bool:
    """Return whether a state is read once and written once, as before `optimize()`."""
    names = sorted(use.owner.operation.name for use in handle.uses)
    return names == ["coreai.read_handle", "coreai.write_handle"]


def _read_and_write(handle: Any) -> tuple[Any, Any]:
    users = sorted((use.owner.operation for use in handle.uses), key=lambda op: str(op.name))
    if not _is_read_and_written(handle):
        raise RuntimeError(
            f"the state of type {handle.type} is used {len(users)} times; set shapes and "
            "constraints before optimize()\n  try   convert the program again"
        )
    return users[0], users[1]
