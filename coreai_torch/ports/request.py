"""What a conversion changes at the border of a program: inputs, outputs, labels, metadata."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ..asset.metadata import metadata_text
from ..asset.program import Program
from ..capture.io_plan import IOPlan, Names, plan
from ..capture.prepare import Captured
from ..errors import ArgumentTypeError, ConversionError, NamingError
from ..ir.types import narrow
from .adapting import Adapter, BoolPort, adapt, from_model, reference, user_inputs
from .cut_outputs import cut_outputs
from .images import ImageInput
from .labels import check_labels

_BOOL_PORTS = ("bool", "int8", "uint8", "int32", "float16", "float32")


@dataclass(frozen=True)
class PortRequest:
    """The arguments of `convert` that concern inputs and outputs; its docstring explains them."""

    images: Mapping[str, ImageInput] = field(default_factory=dict)
    outputs: Sequence[str] | None = None
    bool_ports: str = "bool"
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(
        cls, images: Any, outputs: Any, bool_ports: str, labels: Any, metadata: Any
    ) -> PortRequest:
        """Return the request after a check of its arguments."""
        for what, given in (("images", images), ("metadata", metadata)):
            if given is not None and not isinstance(given, Mapping):
                raise ArgumentTypeError(f"{what} is {given!r}\n  try   pass a dictionary")
        request = cls(images or {}, outputs, bool_ports, labels, metadata or {})
        for name, value in request.metadata.items():
            metadata_text(name, value)  # raises before the conversion, which may take long
        wrong = [v for v in request.images.values() if not isinstance(v, ImageInput)]
        if wrong:
            raise ArgumentTypeError(
                f"images has the value {wrong[0]!r}\n  try   pass images={{'x': ImageInput()}}"
            )
        if request.bool_ports not in _BOOL_PORTS:
            raise ConversionError(
                f"bool_ports is {request.bool_ports!r}\n"
                f"  try   pass one of {', '.join(_BOOL_PORTS)}"
            )
        return request

    @property
    def changes_program(self) -> bool:
        """Whether the captured program changes."""
        return bool(self.images) or self.outputs is not None or self.bool_ports != "bool"

    def model_inputs(
        self, model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any] | None, Mapping[str, Any] | None]:
        """Return example inputs of the model; uint8 tensors for images are preprocessed."""
        if not self.images or not isinstance(model, torch.nn.Module) or args is None:
            return args, kwargs
        try:
            bound = inspect.signature(model.forward).bind(*args, **(kwargs or {}))
        except (TypeError, ValueError):  # reported by the export
            return args, kwargs
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        for name, image in self.images.items():
            value = bound.arguments.get(name)
            if isinstance(value, torch.Tensor) and value.dtype == torch.uint8:
                bound.arguments[name] = image.preprocess(value, dtype)
        return bound.args, bound.kwargs

    def apply(self, captured: Captured, names: Names) -> Captured:
        """Return the captured program with the requested outputs and adapters."""
        if not self.changes_program:
            return captured
        program, model = captured.program, captured.source
        if self.outputs is not None:
            program = model = cut_outputs(program, captured.plan, self.outputs)
        inputs, outputs = self._adapters(program, plan(program, names))
        if inputs or outputs is not None:
            adapted = adapt(program, inputs, outputs)
            inner = model if isinstance(model, torch.nn.Module) else model.module()
            program, model = adapted, reference(inner, program, inputs, outputs)
        return Captured(program, plan(program, names), model, captured)

    def leaves(self, model: Captured, captured: Captured, given: Sequence[Any]) -> list[Any]:
        """Return inputs of the model, as a flat list, as inputs of the changed program."""
        if not self.changes_program:
            return list(given)
        ports = {port.node.name: port.name for port in captured.plan.inputs}
        kept = set(user_inputs(captured.program))
        return [
            self._leaf(name, ports.get(name, ""), leaf)
            for name, leaf in zip(user_inputs(model.program), given, strict=True)
            if name in kept
        ]

    def _leaf(self, node: str, port: str, leaf: Any) -> Any:
        image = self.images.get(port) or self.images.get(node)
        if image is not None:
            return from_model(image, leaf)
        is_bool = isinstance(leaf, torch.Tensor) and leaf.dtype == torch.bool
        return leaf.to(self._bool_dtype) if is_bool and self.bool_ports != "bool" else leaf

    @property
    def _bool_dtype(self) -> torch.dtype:
        dtype = getattr(torch, self.bool_ports)
        assert isinstance(dtype, torch.dtype)
        return dtype

    def _adapters(
        self, program: torch.export.ExportedProgram, ports: IOPlan
    ) -> tuple[dict[str, Adapter], BoolPort | None]:
        found: dict[str, Adapter] = {}
        for name, image in self.images.items():
            node = _input_called(name, ports)
            image.check(name, node.meta["val"])
            found[node.name] = image
        if self.bool_ports == "bool":
            return found, None
        port = BoolPort(self._bool_dtype)
        bools = [i.node for i in ports.inputs if _dtype(i.node.meta["val"]) == torch.bool]
        found.update((node.name, port) for node in bools)
        return found, port

    def describe(self, captured: Captured, program: Program) -> None:
        """Set the metadata of a converted program, and notes about ports of other types."""
        before, after = (captured.original or captured).plan, captured.plan
        program.port_notes = (
            *_notes("input", before.inputs, after.inputs),
            *_notes("output", before.outputs, after.outputs),
        )
        labels = check_labels(self.labels, after)
        program.metadata |= {**self.metadata, **({"labels": labels} if labels else {})}


def _input_called(name: str, ports: IOPlan) -> torch.fx.Node:
    for port in ports.inputs:
        is_tensor = isinstance(port.node.meta["val"], torch.Tensor)
        if is_tensor and name in (port.name, port.node.name):
            return port.node
    known = [port.name for port in ports.inputs]
    near = difflib.get_close_matches(name, known, 1)
    written = [state.name for state in ports.states]
    why = "; the model writes to it" if name in written else ""
    hint = repr(near[0]) if near else f"one of {known}"
    raise NamingError(f"images: no input is called {name!r}{why}\n  try   pass {hint}")


def _dtype(value: Any) -> torch.dtype | None:
    return value.dtype if isinstance(value, torch.Tensor) else None


def _notes(what: str, before: Iterable[Any], after: Iterable[Any]) -> Iterable[str]:
    old = {port.name: _dtype(_value(port)) for port in before}
    for port in after:
        value = _value(port)
        dtype = _dtype(value)
        if dtype is None:
            continue
        stored, of_model = narrow(dtype), old.get(port.name, dtype)
        if stored != of_model:
            names = [str(d).removeprefix("torch.") for d in (of_model, stored)]
            yield f"{what} {port.name!r} is {names[0]} in the model and {names[1]} in the program"


def _value(port: Any) -> Any:
    node = getattr(port, "node", None) or getattr(port, "value", None)
    return node.meta.get("val") if isinstance(node, torch.fx.Node) else None
