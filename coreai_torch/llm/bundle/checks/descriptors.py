"""Checks of the function of a decoder: names, types and sizes of its ports."""

from __future__ import annotations

from ..metadata import INPUTS, KEYS, LOGITS, MAIN, VALUES
from ..runtime import BundleRuntime
from .trial import StepError


def check_ports(runtime: BundleRuntime) -> str:
    """Compare the ports with those that the engine expects; return what was seen."""
    _check_port_names(runtime)
    _check_port_types(runtime)
    keys = runtime.ports.state_descriptor(KEYS)
    layers, _, heads, _, width = keys.shape
    only = ", for the pipelined engine only" if runtime.metadata.kv_cache == "int8" else ""
    more = f", {' and '.join(runtime.fixed)}" if runtime.fixed else ""
    return f"{layers} layers of {heads} heads of {width}, {keys.dtype}{more}{only}"


def _is_private(name: str) -> bool:
    """Return whether a function belongs to a composite; the engine does not list those."""
    return name != MAIN and name.startswith(("coreai.", "coreai_", "_"))


def _check_port_names(runtime: BundleRuntime) -> None:
    ports = runtime.ports
    found = []
    public = [one for one in runtime.model.function_names if not _is_private(one)]
    if public != [MAIN]:
        found.append(f"the functions are {public}, not ['{MAIN}']")
    for what, names, wanted in (
        ("inputs", ports.input_names, list(INPUTS)),
        ("states", ports.state_names, [KEYS, VALUES, *runtime.fixed]),
        ("outputs", ports.output_names[:1], [LOGITS]),
    ):
        if list(names) != wanted:
            found.append(f"the {what} are {list(names)}, not {wanted}")
    if found:
        raise StepError("; ".join(found))


def _check_port_types(runtime: BundleRuntime) -> None:
    ports, vocabulary = runtime.ports, runtime.metadata.vocab_size
    states = [ports.state_descriptor(name) for name in (KEYS, VALUES)]
    inputs = [ports.input_descriptor(name) for name in INPUTS]
    logits = ports.output_descriptor(LOGITS)
    shape = list(states[0].shape)
    checks = [
        ([list(one.shape) for one in inputs] == [[1, -1]] * 2, "the inputs are not [1, ?]"),
        ({str(one.dtype) for one in inputs} == {"int32"}, "the inputs are not int32"),
        (len(shape) == 5, f"{KEYS} has rank {len(shape)}, not 5"),
        (list(states[1].shape) == shape, f"{KEYS} and {VALUES} have other shapes"),
        (states[0].dtype == states[1].dtype, f"{KEYS} and {VALUES} have other dtypes"),
        (shape[3:4] in ([-1], [runtime.metadata.max_context_length]), "the slots are not dynamic"),
        (all(size > 0 for size in [*shape[:3], *shape[4:]]), f"{KEYS} has more dynamic sizes"),
        (str(logits.dtype) == "float16", f"{LOGITS} is {logits.dtype}, not float16"),
        (list(logits.shape) == [1, -1, vocabulary], f"{LOGITS} is not [1, ?, {vocabulary}]"),
        *(
            (min(sizes) > 0 and dtype.is_floating_point, f"{name} is not a fixed state of floats")
            for name, (sizes, dtype) in runtime.fixed.items()
        ),
    ]
    found = [message for holds, message in checks if not holds]
    if found:
        raise StepError("; ".join(found))
