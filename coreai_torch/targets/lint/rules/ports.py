"""Inputs, outputs and what is stored beside them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from ....asset.reading import DYNAMIC
from ..rule import Match, Rule, ops_where, port_match, ports_where
from ..view import HALF, ProgramView

_WIDE = ("si64", "ui64", "f64")
_MANY_OUTPUTS = 16


def _same_names(view: ProgramView) -> Iterator[Match]:
    for function in view.entries:
        for ports in (function.inputs, function.outputs):
            counted = Counter(port.name for port in ports)
            yield from ((f"{n!r} of {function.name!r}", "") for n, c in counted.items() if c > 1)


def _many_outputs(view: ProgramView) -> Iterator[Match]:
    for function in view.entries:
        outputs = [port for port in function.outputs if port.type.kind != "token"]
        if len(outputs) >= _MANY_OUTPUTS:
            yield f"{len(outputs)} outputs of {function.name!r}", ""


def _unbounded_sizes(view: ProgramView) -> Iterator[Match]:
    """Find inputs with a dynamic size whose range is known to have no end."""
    for function in view.entries:
        ports = (view.ranges or {}).get(function.name, {})
        for port in function.inputs:
            sizes = ports.get(port.name, {}).values()
            if any(upper is None for _, _, upper, *_ in sizes):
                yield port_match(port, function.name)


RULES = (
    Rule(
        "HAZ01",
        "error",
        ("cpu", "gpu", "neural_engine"),
        "64-bit inputs or outputs, which devices do not support",
        "convert with coreai_torch, which narrows them to 32 bits",
        "coreai-model-zoo error index",
        ports_where(lambda t: t.element in _WIDE, outputs=True),
    ),
    Rule(
        "HAZ02",
        "error",
        ("cpu", "gpu", "neural_engine"),
        "inputs or outputs with the same name: the runtime keeps only one",
        "pass different input_names and output_names",
        "measured with coreai-core 1.0.0b3 on Linux",
        _same_names,
    ),
    Rule(
        "HAZ04",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "boolean inputs, which devices reject",
        "use an int8 or float input, and compare it with zero in the model",
        "coreai-model-zoo error index",
        ports_where(lambda t: t.element == "i1"),
    ),
    Rule(
        "HAZ05",
        "warning",
        ("cpu", "gpu", "neural_engine"),
        "paths of source files on the machine that converted it",
        "run coreai-torch strip",
        "coreai-torch issues 37 and 44: such assets of version 0.4.0 stopped loading",
        ops_where(lambda view, op: bool(op.place.file)),
    ),
    Rule(
        "HAZ50",
        "info",
        ("cpu", "gpu", "neural_engine"),
        "many outputs: the runtime of devices ends after 16,384 output arrays in a process",
        "concatenate outputs, or restart the process in time",
        "coreai-torch issue 75",
        _many_outputs,
    ),
    Rule(
        "HAZ54",
        "warning",
        ("neural_engine",),
        "inputs of dynamic size: the neural engine compiles each size anew, or runs on the GPU",
        "export with fixed sizes",
        "coreai-model-zoo conversion guide",
        ports_where(lambda t: DYNAMIC in t.shape),
    ),
    Rule(
        "HAZ58",
        "info",
        ("gpu", "neural_engine"),
        "a dynamic size without an upper bound: devices compile each size and cache the result",
        "export with a range: torch.export.Dim(name, min=1, max=8), or with fixed sizes",
        "coreai-model-zoo conversion guide, on caches that grow with each size",
        _unbounded_sizes,
    ),
    Rule(
        "HAZ56",
        "info",
        ("cpu", "gpu", "neural_engine"),
        "float16 inputs: an app that passes float32 gets CoreAIError 3",
        "pass float16 arrays in the app",
        "coreai-model-zoo error index",
        ports_where(lambda t: t.element == HALF and t.kind == "tensor"),
    ),
)
