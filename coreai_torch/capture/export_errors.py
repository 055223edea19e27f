"""Explain why a model could not be exported: the cause, the user's line, and a hint."""

from __future__ import annotations

import difflib
import inspect
import re
import sysconfig
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import ExportError, shortened
from ..torch_compat import is_data_dependent, pytree
from .eager import eager_failure

PACKAGE = str(Path(__file__).parents[1])
TORCH = str(Path(torch.__file__).parent)
_STANDARD = sysconfig.get_path("stdlib")
_LIBRARIES = sysconfig.get_path("purelib")
_SYMPY = str(Path(_LIBRARIES) / "sympy")
_REASON_LINES, _REASON = 3, 200  # lines of torch's message, and characters of each

_BRANCH = (
    "use torch.where or torch.cond instead of if, while, int(), bool() and .item() on the values "
    "of a tensor, or pass a value that never changes as a Python number; convert(assume='example') "
    "lets the values of the example inputs decide"
)
_PACKED = (
    "pass the padded tensor to the layer, without pack_padded_sequence: padding comes after the "
    "data, so the outputs at the data are the same, and output[torch.arange(n), lengths - 1] is "
    "the last one of each sequence (for the backward direction, first reverse each sequence within "
    "its length, with gather)"
)
_CAST = "call .to() on the module before the conversion: forward must not replace parameters"
_NUMPY = "compute with torch functions: numpy cannot be traced"
_OTHER = (
    "call torch.export.export(model, args) by itself: the error is chained, and the model's code "
    "or its dynamic_shapes must change"
)
_ADVICE = re.compile(
    r"TORCH_LOGS|TORCHDYNAMO|^(Caused by:|consider using data-dep|For more |The error above "
    r"|The following call raised|User Stack|Suggested fixes)"
)


def check_exportable(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Reject a model and inputs that torch.export never supports."""
    if isinstance(model, torch.jit.ScriptModule):
        raise ExportError(
            f"{model.original_name} is a ScriptModule, which torch.export does not support\n"
            "  try   pass the nn.Module that it was scripted or traced from"
        )
    for path, leaf in pytree.tree_leaves_with_path((tuple(args), dict(kwargs))):
        is_number = isinstance(leaf, int | float)  # numpy.float64 is a float
        if type(leaf).__module__.partition(".")[0] == "numpy" and not is_number:
            side = ("args", "kwargs")[path[0].idx]
            name = f"{side}{pytree.keystr(path[1:])}"
            raise ExportError(
                f"{name} is a {type(leaf).__name__} of numpy; the inputs of a model are tensors\n"
                f"  try   pass torch.as_tensor({name})"
            )


def check_eager(
    model: torch.nn.Module, args: Sequence[Any] | None, kwargs: Mapping[str, Any] | None
) -> None:
    """Raise if the model fails on the inputs without any export."""
    if isinstance(args, torch.Tensor):
        return  # `export` rejects it
    given = (tuple(args or ()), dict(kwargs or {}))
    check_exportable(model, *given)
    if mismatch := _signature_mismatch(model, *given):
        raise mismatch
    failure = eager_failure(model, *given)
    if failure is not None:
        raise _eager_error(model, failure) from failure


def _eager_error(model: torch.nn.Module, failure: Exception) -> ExportError:
    return ExportError(
        f"{type(model).__name__} itself fails on the given inputs: {_reason(failure)}"
        f"{_place(failure)}\n  try   pass inputs that the model accepts in torch"
    )


def explain(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    cause: Exception,
) -> ExportError:
    """Return the error for a failed export. The model's own failure comes first."""
    name = type(model).__name__
    if mismatch := _signature_mismatch(model, args, kwargs):
        return mismatch
    failure = eager_failure(model, args, kwargs)
    if failure is not None:
        return _eager_error(model, failure)
    reason, hint = _dynamic_shapes_problem(model, args, kwargs, dynamic_shapes, str(cause))
    if not hint:
        reason, hint = _reason(cause), _hint(cause)
    return ExportError(
        f"torch.export could not export {name}: {reason}{_place(cause)}\n  try   {hint}"
    )


def _signature_mismatch(
    model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> ExportError | None:
    """Return the error for arguments that `forward` does not take."""
    try:
        signature = inspect.signature(model.forward)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        names = list(signature.parameters)
        unknown = [n for n in kwargs if n not in names]
        near = difflib.get_close_matches(unknown[0], names, 1) if unknown else []
        hint = f"did you mean {near[0]!r}? " if near else ""
        return ExportError(
            f"{type(model).__name__}.forward{signature} does not take the given arguments: {error}"
            f"\n  try   {hint}pass args and kwargs as for a call of the model"
        )
    return None


def _dynamic_shapes_problem(
    model: torch.nn.Module,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    dynamic_shapes: Any,
    message: str,
) -> tuple[str, str]:
    """Return the reason and the hint if dynamic_shapes are wrong, else empty strings."""
    texts = [d for d in _leaves(dynamic_shapes) if isinstance(d, str)]
    if texts:
        return (
            f"dynamic_shapes has the text {texts[0]!r} where a size belongs",
            f"pass torch.export.Dim({texts[0]!r}) or torch.export.Dim.AUTO",
        )
    if "top-level keys must be the arg names" in message and isinstance(dynamic_shapes, Mapping):
        if (example := _variadic_shapes(model, args)) is not None:
            return f"dynamic_shapes has the keys {[str(key) for key in dynamic_shapes]}", example
        bound = inspect.signature(model.forward).bind(*args, **kwargs).arguments
        given = [str(key) for key in dynamic_shapes]
        return (
            f"dynamic_shapes has the keys {given}, but the given arguments are {list(bound)}",
            f"use the keys {list(bound)}, with None for an argument without dynamic sizes",
        )
    if "mismatch between the structure of `inputs`" in message:
        if (example := _variadic_shapes(model, args)) is not None:
            return "dynamic_shapes does not have the structure of the inputs", example
        return (
            "dynamic_shapes does not have the structure of the inputs",
            "pass one entry for each argument, in the same tuples and dictionaries, with None for "
            "an argument without dynamic sizes",
        )
    if fixed := re.search(r"You marked (\S+) as dynamic but .*constant \((\d+)\)", message):
        name, size = fixed.groups()
        if int(size) < 2:
            return (
                f"the dynamic size {name} is {size} in the example input, and torch fixes such "
                "sizes",
                f"pass an example input whose size {name} is at least 2; the program then takes "
                f"{size} too if Dim({name!r}, min={size}) allows it",
            )
        return (
            f"the model's code fixes the dynamic size {name} to {size}",
            f"compute with x.shape in the model instead of the number {size}, or remove {name} "
            "from dynamic_shapes",
        )
    return "", ""


def _variadic_shapes(model: torch.nn.Module, args: Sequence[Any]) -> str | None:
    """Return the form that torch wants for `forward(self, x, *others)`, or None for others."""
    parameters = list(inspect.signature(model.forward).parameters.values())
    named = [p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD][: len(args)]
    variadic = [p.name for p in parameters if p.kind is p.VAR_POSITIONAL]
    if not variadic:
        return None
    count = len(args) - len(named)
    rest = "".join("None, " for _ in range(count))
    entries = [*(f"{name!r}: None" for name in named), f"{variadic[0]!r}: ({rest.rstrip()})"]
    form = ", ".join(entries)
    return (
        f"pass {{{form}}}, in which a dictionary from axes to sizes replaces None: the {count} "
        f"arguments of *{variadic[0]} are one tuple"
    )


def _leaves(dynamic_shapes: Any) -> list[Any]:
    if isinstance(dynamic_shapes, Mapping):
        return [leaf for part in dynamic_shapes.values() for leaf in _leaves(part)]
    if isinstance(dynamic_shapes, list | tuple):
        return [leaf for part in dynamic_shapes for leaf in _leaves(part)]
    return [dynamic_shapes]


def _hint(cause: Exception) -> str:
    if _is_packed(cause):
        return _PACKED
    if "_apply(): Couldn't swap" in str(cause):
        return _CAST
    if is_data_dependent(cause):
        return _BRANCH
    return _NUMPY if "numpy" in str(cause) else _OTHER


def _is_packed(cause: Exception) -> bool:
    """Return whether a packed sequence failed, whose sizes depend on the lengths."""
    last = [f for f in traceback.extract_tb(cause.__traceback__) if f.filename.startswith(TORCH)]
    files = {Path(frame.filename).relative_to(TORCH).as_posix() for frame in last}
    is_size = "failed to unpack the object" in str(cause)  # `max_batch_size` of an RNN
    return "nn/utils/rnn.py" in files or (is_size and "nn/modules/rnn.py" in files)


def _reason(cause: Exception) -> str:
    """Return the type and the first lines of a message, without torch's advice on its logs."""
    message = re.sub(r" \(unhinted: .*?\)\.|  \(Size-like symbols: .*?\)", "", str(cause))
    lines = [line.strip() for line in message.splitlines()]
    kept = [line for line in lines if line and not _ADVICE.search(line)]
    shown = "\n        ".join(shortened(line, _REASON) for line in kept[:_REASON_LINES])
    return f"{type(cause).__name__}: {shown}"


def _place(cause: BaseException) -> str:
    """Return the line of the user's code that failed, and of the library that it called."""
    frames = [
        frame
        for frame in traceback.extract_tb(cause.__traceback__)
        if not frame.filename.startswith((PACKAGE, TORCH, _SYMPY, "<"))
        and not (frame.filename.startswith(_STANDARD) and not frame.filename.startswith(_LIBRARIES))
    ]
    own = [frame for frame in frames if not frame.filename.startswith(_LIBRARIES)]
    shown = [*own[-1:], *([frames[-1]] if frames and frames[-1] not in own else [])]
    lines = [f'File "{f.filename}", line {f.lineno}, in {f.name}: {f.line}' for f in shown]
    return "\n  at    " + "\n        ".join(lines) if lines else ""
