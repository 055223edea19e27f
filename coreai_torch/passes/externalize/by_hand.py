"""Externalize a model in two steps, with other tools in between: patch it, then collect the calls.

A patched module calls one opaque torch op, so that a quantizer that works on exported graphs does
not change the inside of the module. `lowering.opaque_calls` puts the computation back.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any
from uuid import uuid4

import torch
import torch.fx as fx

from ...errors import ExternalizeError
from ...torch_compat import OpOverload, pytree
from . import uncalled
from .spec import Externalized, as_specs, matches

NAMESPACE = "coreai_torch_ext"
_RECORD = "_coreai_torch_externalized"  # attribute of a patched module


@dataclass(eq=False)
class Patched:
    """A module whose `forward` calls an opaque op, and the `forward` that it had."""

    match: Externalized
    op_name: str
    forward: Callable[..., Any]
    structure: Any = None  # of the result, known when `forward` ran

    def compute(self, tensors: Sequence[torch.Tensor], names: str) -> list[torch.Tensor]:
        """Run the original `forward` on named tensors and return the tensors of the result."""
        given = dict(zip(names.split(), tensors, strict=True))
        module = self.match.module
        owned = {name: given.pop(f"self.{name}") for name in self.match.owned()}
        args, kwargs = self._arguments(given)
        if module.forward == self.forward:
            result = torch.func.functional_call(module, owned, args, kwargs)
        else:  # patched: the parameters that were passed are those of the module
            result = self.forward(*args, **kwargs)
        leaves, self.structure = pytree.tree_flatten(result)
        return [leaf.clone() if any(leaf is t for t in tensors) else leaf for leaf in leaves]

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Call the opaque op with the module's tensors and the arguments."""
        bound = inspect.signature(self.forward).bind(*args, **kwargs).arguments
        named = {f"self.{name}": tensor for name, tensor in self.match.owned().items()}
        for name, value in bound.items():
            parts = _parts(name, value, inspect.signature(self.forward).parameters[name].kind)
            named |= {key: part for key, part in parts.items() if part is not None}
        for name, value in named.items():
            if not isinstance(value, torch.Tensor):
                raise ExternalizeError(
                    f"argument {name!r} of externalized module {self.match.path!r} is {value!r} "
                    f"({type(value).__name__}), not a tensor\n  try   keep it as an attribute of "
                    "the module, named in composite_attrs"
                )
        op = getattr(getattr(torch.ops, NAMESPACE), self.op_name).default
        leaves = op(list(named.values()), " ".join(named))
        return pytree.tree_unflatten(leaves, self.structure)

    def _arguments(self, given: dict[str, torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for name, parameter in inspect.signature(self.forward).parameters.items():
            if parameter.kind is inspect.Parameter.VAR_POSITIONAL:
                args += [given.pop(key) for key in list(given) if key.startswith(f"{name}_")]
            elif parameter.kind is not inspect.Parameter.VAR_KEYWORD and name in given:
                kwargs[name] = given.pop(name)
        kwargs |= given
        return tuple(args), kwargs


@dataclass(frozen=True)
class ExternalizedProgram:
    """The calls of one patched module in an exported program."""

    name: str
    op_name: str
    composite_op_name: str | None
    composite_decl_attrs: dict[str, Any]
    composite_input_names: list[str]
    composite_output_names: list[str]
    source_nodes: list[str]
    patched: Patched = field(repr=False)


def patch_model(model: torch.nn.Module, targets: Sequence[Any]) -> None:
    """Make each module that a target matches call an opaque op; `subexport` restores them."""
    for match in list(matches(model, as_specs(targets))):
        module = match.module
        if hasattr(module, _RECORD):
            continue
        op_name = re.sub(r"\W", "_", f"{match.path or 'model'}_{uuid4().hex[:8]}")
        patched = Patched(match, op_name, module.forward)
        _define(patched)
        setattr(module, _RECORD, patched)
        module.forward = patched.call


def marked_submodules(model: torch.nn.Module) -> list[torch.nn.Module]:
    """Return the patched modules of a model."""
    return [module for module in model.modules() if hasattr(module, _RECORD)]


def subexport(
    model: torch.nn.Module, exported_program: torch.export.ExportedProgram
) -> list[ExternalizedProgram]:
    """Restore the patched modules and return their calls in the exported program."""
    calls: dict[str, list[fx.Node]] = {}
    for node in opaque_calls(exported_program.graph_module):
        calls.setdefault(node.target._opname, []).append(node)
    found: list[ExternalizedProgram] = []
    matched: list[Externalized] = []
    for module in marked_submodules(model):
        patched: Patched = getattr(module, _RECORD)
        _restore(module, patched)
        nodes = calls.get(patched.op_name)
        matched.append(patched.match)
        if nodes:
            found.append(_described(patched, nodes))
    uncalled.warn(matched, [one.patched.match for one in found])
    return found


def opaque_calls(module: fx.GraphModule) -> list[fx.Node]:
    """Return the calls of patched modules, branches included."""
    graphs = [inner for inner in module.modules() if isinstance(inner, fx.GraphModule)]
    return [node for inner in graphs for node in inner.graph.nodes if is_opaque(node)]


def is_opaque(node: fx.Node) -> bool:
    """Whether a node is the call of a patched module."""
    return isinstance(node.target, OpOverload) and node.target.namespace == NAMESPACE


def _define(patched: Patched) -> None:
    library = torch.library.Library(NAMESPACE, "FRAGMENT")
    library.define(f"{patched.op_name}(Tensor[] tensors, str names) -> Tensor[]")
    library.impl(patched.op_name, patched.compute, "CompositeExplicitAutograd")
    torch.library.register_fake(f"{NAMESPACE}::{patched.op_name}", patched.compute, lib=library)
    _LIBRARIES.append(library)  # a collected library takes its ops with it


_LIBRARIES: list[torch.library.Library] = []


def _restore(module: torch.nn.Module, patched: Patched) -> None:
    delattr(module, _RECORD)
    del module.forward
    if module.forward != patched.forward:  # an instance with its own `forward`
        module.forward = patched.forward


def _described(patched: Patched, nodes: Sequence[fx.Node]) -> ExternalizedProgram:
    match = patched.match
    names = [name.removeprefix("self.") for name in str(nodes[0].args[1]).split()]
    count = len(nodes[0].meta["val"])
    outputs = ["output"] if count == 1 else [f"output_{i}" for i in range(count)]
    return ExternalizedProgram(
        match.path,
        patched.op_name,
        match.composite,
        dict(match.attrs),
        names,
        outputs,
        [node.name for node in nodes],
        patched,
    )


def _parts(name: str, value: Any, kind: Any) -> dict[str, Any]:
    if kind is inspect.Parameter.VAR_POSITIONAL:
        return {f"{name}_{i}": part for i, part in enumerate(value)}
    return dict(value) if kind is inspect.Parameter.VAR_KEYWORD else {name: value}
