"""The methods of `Program` on the class `AIProgram` of coreai-core.

Other programs test `type(program) is AIProgram`, so a conversion cannot return a subclass. Methods
that `AIProgram` lacks are added to it. Those that it has keep their behavior for the programs of
others and are replaced for converted ones only. `docs/adr/0015` has the reasons.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, cast

from coreai.authoring import AIProgram

from .mlir_module import mlir_module_of
from .program import Program
from .states import (
    LOOK_UP,
    OPTIMIZES_ON_REQUEST,
    find_graph,
    graph_with_tensors,
    has_shapes,
    restore_handles,
    to_handles,
    to_tensors,
)

_MARK = "_optimize_at_save"  # an attribute of converted programs only


def converted(mlir_module: Any, *, optimize_at_save: bool = False, tested: bool = False) -> Program:
    """Return a program whose class is `AIProgram`, with the methods of `Program`.

    `tested` says that all ops come from lowerings of this package.
    """
    program = AIProgram._from_mlir_module(mlir_module)
    setattr(program, _MARK, optimize_at_save)
    program._is_tested = tested
    program.metadata = {}
    program.port_notes = ()
    program.rewrites = ()
    program.regions = None
    return cast(Program, program)


def _get_graph(self: AIProgram, name: str) -> Any:
    """Return the graph of an entry point, or None; a converted program's states are tensors."""
    try:
        return graph_with_tensors(self, name) if hasattr(self, _MARK) else find_graph(self, name)
    except ValueError:
        return None


def _constrain_handles(
    self: AIProgram, entrypoint: str, hw_constraint_config: Mapping[str, Any]
) -> None:
    """Set constraints on inputs, states and outputs; since 1.0.0b3 states are taken as handles."""
    restore_handles(self)
    self._get_graph = partial(LOOK_UP, self)
    try:
        _ORIGINALS["set_hardware_constraints"](self, entrypoint, hw_constraint_config)
    finally:
        del self._get_graph


def _constrain_tensors(
    self: AIProgram, entrypoint: str, hw_constraint_config: Mapping[str, Any]
) -> None:
    """Set constraints on inputs, states and outputs; 1.0.0b2 takes states as tensors only."""
    restore_handles(self)
    graph = find_graph(self, entrypoint)
    with graph.operation.context:
        to_tensors(graph)
    _ORIGINALS["set_hardware_constraints"](self, entrypoint, hw_constraint_config)
    if not has_shapes(find_graph(self, entrypoint)):
        to_handles(mlir_module_of(self))


def _constrain(self: AIProgram, entrypoint: str, hw_constraint_config: Mapping[str, Any]) -> None:
    """Set constraints on an entry point, or on each one that static shapes replaced it by."""
    constrain = _constrain_tensors if OPTIMIZES_ON_REQUEST else _constrain_handles
    names = [entrypoint]
    if LOOK_UP(self, entrypoint) is None:
        names = getattr(self, "_specialized", {}).get(entrypoint, names)
    for name in names:
        constrain(self, name, hw_constraint_config)


def _save_bytecode(self: AIProgram, *args: Any, **kwargs: Any) -> None:
    """Write the module, with the states as handles."""
    restore_handles(self)
    _ORIGINALS["_save_bytecode"](self, *args, **kwargs)


def _deep_copy(self: AIProgram, memo: dict[int, Any]) -> AIProgram:
    """Copy the module, and what is known about the program."""
    other = _ORIGINALS["__deepcopy__"](self, memo)
    for name in vars(self).keys() - vars(other).keys():
        setattr(other, name, copy.deepcopy(vars(self)[name], memo))
    return cast(AIProgram, other)


_ADDED: dict[str, Any] = {
    "optimize": Program.optimize,
    "mlir_module": Program.mlir_module,
    "module": Program.mlir_module,
    "_repr_html_": Program._repr_html_,
    "__rich__": Program.__rich__,
}
_REPLACED: dict[str, Callable[..., Any]] = {
    "save_asset": Program.save_asset,
    "set_hardware_constraints": _constrain,
    "set_static_shape_config": Program.set_static_shape_config,
    "_save_bytecode": _save_bytecode,
    "__deepcopy__": _deep_copy,
}
_ORIGINALS: dict[str, Callable[..., Any]] = {}


def _extend() -> None:
    """Add the methods; a second import of this package must not replace the replacements."""
    replaced = dict(_REPLACED)
    AIProgram.get_graph = AIProgram._get_graph = _get_graph
    if hasattr(AIProgram, "optimize"):  # 1.0.0b2
        replaced["optimize"] = Program.optimize
    else:
        AIProgram._mlir_module = property(mlir_module_of)  # an attribute in 1.0.0b2
    for name, added in _ADDED.items():
        if not hasattr(AIProgram, name):
            setattr(AIProgram, name, added)
    for name, own in replaced.items():
        _ORIGINALS[name] = getattr(AIProgram, name)
        setattr(AIProgram, name, _for_converted(own, _ORIGINALS[name]))


def _for_converted(own: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(original)
    def method(self: AIProgram, *args: Any, **kwargs: Any) -> Any:
        chosen = own if hasattr(self, _MARK) else original
        return chosen(self, *args, **kwargs)

    return method


if not hasattr(AIProgram, "mlir_module"):
    _extend()
