"""What a conversion changes at the border of a program: inputs, outputs, labels, metadata."""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from coreai.authoring import AIModelAsset, AIProgram

from ..asset import reading
from ..asset.metadata import (
    ASSUMPTIONS,
    IMAGES,
    LABELS,
    RANDOM,
    assumptions_of,
    images_of,
    random_of,
    read_metadata,
)
from ..asset.program import Program
from ..capture.assuming import EXAMPLE
from ..capture.io_plan import IOPlan, Names, Output, plan
from ..capture.prepare import Captured
from ..capture.random_draws import Randomness, check_randomness, draw_of
from ..errors import ArgumentTypeError, ConversionError, NamingError
from ..fx.programs import user_inputs
from ..ir.types import narrow
from .adapting import Adapter, BoolPort, adapt, from_model, reference
from .cut_outputs import cut_outputs
from .images import ImageInput


def check_labels(labels: Any, ports: IOPlan) -> dict[str, list[str]]:
    """Return the labels by output; each output must have one element for each label."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        texts = _texts("labels", labels)
        fits = [port for port in ports.outputs if _classes(port) == len(texts)]
        if not fits:
            sizes = "; ".join(f"{port.name} {_shape(port)}" for port in ports.outputs)
            raise NamingError(
                f"there are {len(texts)} labels, but no output has a last axis of this size: "
                f"{sizes}\n  try   {_move_classes(ports, len(texts))}"
            )
        return {fits[0].name: texts}
    by_name = {port.name: port for port in ports.outputs}
    found = {}
    for name, given in labels.items():
        if name not in by_name:
            raise NamingError(
                f"labels: no output is called {name!r}\n  try   pass one of {list(by_name)}"
            )
        texts, count = _texts(f"labels[{name!r}]", given), _classes(by_name[name])
        if count is not None and count != len(texts):
            raise NamingError(
                f"the output {name!r} has {count} classes, but there are {len(texts)} labels: its "
                f"shape is {_shape(by_name[name])}\n  try   {_move_classes(ports, len(texts))}"
            )
        found[name] = texts
    return found


def _classes(port: Output) -> int | None:
    """Return the last size of an output; None if it is dynamic or the output has no axes."""
    node = port.value
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not value.ndim:
        return None
    return int(value.shape[-1]) if isinstance(value.shape[-1], int) else None


def _shape(port: Output) -> str:
    node = port.value
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor):
        return "(a number)"
    sizes = [str(size) if isinstance(size, int) else "dynamic" for size in value.shape]
    return f"[{', '.join(sizes)}]"


def _move_classes(ports: IOPlan, count: int) -> str:
    """Return what to do about labels that do not fit; name the axis that has their number."""
    for port in ports.outputs:
        node = port.value
        value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
        shape = value.shape if isinstance(value, torch.Tensor) else ()
        for axis, size in enumerate(shape[:-1]):
            if isinstance(size, int) and size == count:
                return (
                    f"return {port.name}.movedim({axis}, -1) in the model: axis {axis} has "
                    f"{count} classes, and labels name the elements of the last axis"
                )
    return "pass one label for each element of the last axis of an output"


def _texts(what: str, given: Any) -> list[str]:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if not listed or not given or not all(isinstance(text, str) for text in given):
        raise NamingError(f"{what} is {given!r}\n  try   pass a list of texts")
    return list(given)


_BOOL_PORTS = ("bool", "int8", "uint8", "int32", "float16", "float32")


@dataclass(frozen=True)
class Ports:
    """The inputs, outputs and states of a converted program.

    Args:
        input_names: one name for each argument that `forward` only reads, in order.
        output_names: one name for each value that it returns.
        state_names: one name for each buffer, then each argument, that it writes in place.
        outputs: names of FX nodes, or paths of modules, whose values the program returns instead
            of those of the model; what they do not depend on is removed, inputs too.
        images: inputs that take uint8 pixels, by name; each `ImageInput` has the preprocessing.
        bool_ports: the dtype of bool inputs and outputs, such as "int8", because devices reject
            bool inputs; the `port_notes` of the result name each port whose dtype changed.
        labels: the class labels of an output, or of each output by name.
        random: "input" turns the random numbers that the model draws into inputs; with "seed" the
            program computes them of the input `seed`. Their inputs follow those of the model.
    """

    input_names: Sequence[str] | None = None
    output_names: Sequence[str] | None = None
    state_names: Sequence[str] | None = None
    outputs: Sequence[str] | None = None
    images: Mapping[str, ImageInput] | None = None
    bool_ports: str = "bool"
    labels: Sequence[str] | Mapping[str, Sequence[str]] | None = None
    random: str | None = None

    def __post_init__(self) -> None:
        """Raise if an argument has the wrong type or value."""
        if self.images is not None and not isinstance(self.images, Mapping):
            raise ArgumentTypeError(f"images is {self.images!r}\n  try   pass a dictionary")
        wrong = [v for v in (self.images or {}).values() if not isinstance(v, ImageInput)]
        if wrong:
            raise ArgumentTypeError(
                f"images has the value {wrong[0]!r}\n  try   pass images={{'x': ImageInput()}}"
            )
        if self.bool_ports not in _BOOL_PORTS:
            raise ConversionError(
                f"bool_ports is {self.bool_ports!r}\n  try   pass one of {', '.join(_BOOL_PORTS)}"
            )

        check_randomness(self.random)

    @property
    def randomness(self) -> Randomness | None:
        """Where the program takes its random numbers from."""
        return check_randomness(self.random)

    @property
    def names(self) -> Names:
        """The names of the ports."""
        return Names(self.input_names, self.output_names, self.state_names)

    @property
    def changes_program(self) -> bool:
        """Whether the captured program changes."""
        return bool(self.images) or self.outputs is not None or self.bool_ports != "bool"

    def model_inputs(
        self, model: Any, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
    ) -> tuple[Sequence[Any] | None, Mapping[str, Any] | None]:
        """Return example inputs of the model; uint8 tensors for images are preprocessed."""
        images = self.images or {}
        if not images or not isinstance(model, torch.nn.Module) or args is None:
            return args, kwargs
        try:
            bound = inspect.signature(model.forward).bind(*args, **(kwargs or {}))
        except (TypeError, ValueError):  # reported by the export
            return args, kwargs
        dtype = next((p.dtype for p in model.parameters() if p.is_floating_point()), torch.float32)
        for name, image in images.items():
            value = bound.arguments.get(name)
            if isinstance(value, torch.Tensor) and value.dtype == torch.uint8:
                bound.arguments[name] = image.preprocess(value, dtype)
        return bound.args, bound.kwargs

    def apply(self, captured: Captured) -> Captured:
        """Return the captured program with the requested outputs and adapters."""
        if not self.changes_program:
            return captured
        program, model, names = captured.program, captured.source, self.names
        if self.outputs is not None:
            program = model = cut_outputs(program, captured.plan, self.outputs)
        inputs, outputs = self._adapters(program, plan(program, names))
        if inputs or outputs is not None:
            adapted = adapt(program, inputs, outputs)
            inner = model if isinstance(model, torch.nn.Module) else model.module()
            program, model = adapted, reference(inner, program, inputs, outputs)
        return replace(
            captured, program=program, plan=plan(program, names), source=model, original=captured
        )

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
        image = self._image(port, node)
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
        for name, image in (self.images or {}).items():
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
        """Record the ports in a converted program, and note those whose types changed."""
        before, after = (captured.original or captured).plan, captured.plan
        program.port_notes = (
            *_notes("input", before.inputs, after.inputs),
            *_notes("output", before.outputs, after.outputs),
        )
        described = {
            LABELS: check_labels(self.labels, after),
            IMAGES: self._records(after),
            RANDOM: _random_record(after),
            ASSUMPTIONS: [vars(one) for one in captured.assumptions],
        }
        program.metadata |= {name: value for name, value in described.items() if value}

    def _records(self, ports: IOPlan) -> dict[str, Any]:
        """Return the arguments of the image inputs of a program by the names of its inputs."""
        found = ((port.name, self._image(port.name, port.node.name)) for port in ports.inputs)
        return {name: image.record() for name, image in found if image is not None}

    def _image(self, port: str, node: str) -> ImageInput | None:
        """Return the image input of a name in the program, or of a name in the model."""
        images = self.images or {}
        return images.get(port) or images.get(node)


def _random_record(ports: IOPlan) -> dict[str, Any]:
    """Return what each input of random numbers is filled with, by name."""
    found = ((port.name, draw_of(port.node)) for port in ports.inputs)
    return {name: draw.record() for name, draw in found if draw is not None}


def recorded_randomness(source: Any) -> str | None:
    """Return the argument `random` with which a program was converted."""
    try:
        found = random_of(read_metadata(source))
    except (ConversionError, OSError):  # reported by whoever runs the program
        return None
    if not found:
        return None
    kinds = {record["kind"] for record in found.values()}
    return str(Randomness.SEED if kinds == {"seed"} else Randomness.INPUT)


def recorded_assume(source: Any) -> str | None:
    """Return the argument `assume` with which a program was converted."""
    try:
        return EXAMPLE if assumptions_of(read_metadata(source)) else None
    except (ConversionError, OSError):  # reported by whoever runs the program
        return None


def recorded_images(source: Any, entrypoint: str, names: Sequence[str]) -> dict[str, ImageInput]:
    """Return the image inputs that a program records, by the names of the model's inputs.

    An input of another name is the one at the same place.
    """
    if not isinstance(source, AIProgram | AIModelAsset | Path | str):
        return {}
    try:
        recorded = images_of(read_metadata(source))
        function = reading.read(source, largest=0).functions[entrypoint] if recorded else None
    except (ConversionError, OSError, KeyError):  # reported by whoever runs the program
        return {}
    if function is None:
        return {}
    ports = [port.name for port in function.inputs if port.type.kind != "handle"]
    own = {name: name for name in names} | dict(
        pair for pair in zip(ports, names, strict=False) if pair[0] not in names
    )
    known = ImageInput.__dataclass_fields__
    return {
        own.get(name, name): ImageInput(**{n: v for n, v in data.items() if n in known})
        for name, data in recorded.items()
    }


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
