"""All errors that users see: one line says what is wrong, one where, one what to do."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch.fx as fx

REGISTER_HINT = "register a lowering with TorchConverter.register_torch_lowering(...)"
REPORT_HINT = "report this bug of the converter with the model"
_LONGEST = 500  # characters of a line of a message


def shortened(text: str, length: int) -> str:
    """Return the text, without its middle if it is longer than `length`."""
    if len(text) <= length:
        return text
    half = (length - 5) // 2
    return f"{text[:half]} ... {text[-half:]}"


def cut_lines(text: str) -> str:
    """Shorten every line that is too long to read; symbolic sizes can have thousands of terms."""
    if len(text) <= _LONGEST:
        return text
    return "\n".join(shortened(line, _LONGEST) for line in text.splitlines())


class CodedError(Exception):
    """Base of all errors; the code is stable, and docs/errors.md explains it."""

    code = "CAT100"

    def __str__(self) -> str:
        """Return the message, with the code on a separate line."""
        return f"{cut_lines(super().__str__())}\n  code  {self.code}"


class ConversionError(CodedError, ValueError):
    """Base of all conversion errors; also a ValueError."""

    code = "CAT101"


class UnsupportedOpError(ConversionError):
    """Ops of the program have no lowering; the message lists all of them."""

    code = "CAT102"


class UnsupportedArgumentError(ConversionError):
    """The lowering of an op does not support this value of an argument."""

    code = "CAT103"


class NotDecomposedError(ConversionError):
    """The program still contains ops that `run_decompositions` replaces."""

    code = "CAT104"


class NarrowingError(ConversionError):
    """A 64-bit constant does not fit into 32 bits; devices have no 64-bit numbers."""

    code = "CAT105"


class WrongResultError(ConversionError):
    """A lowering returned another type than the exported graph requires."""

    code = "CAT106"


class LoweringError(ConversionError):
    """A lowering raised an error, which is chained."""

    code = "CAT107"


class NamingError(ConversionError):
    """Names do not match the inputs, outputs or states of the program."""

    code = "CAT108"


class ExportError(ConversionError):
    """The export failed, the model fails, or `export_fn` returned no decomposed program."""

    code = "CAT109"


class ExternalizeError(ConversionError):
    """A module cannot be externalized as requested."""

    code = "CAT110"


class KernelError(ConversionError):
    """A Metal kernel, or a call of one, is invalid."""

    code = "CAT111"


class ModelCodeError(ConversionError):
    """The code of the model failed: its module or factory raised, or called `sys.exit`."""

    code = "CAT112"


class ArgumentTypeError(ConversionError, TypeError):
    """An argument has the wrong type; also a TypeError."""

    code = "CAT113"


class NothingStagedError(ConversionError, RuntimeError):
    """`to_coreai` was called before a program was added; also a RuntimeError."""

    code = "CAT114"


class UnsupportedTorchError(CodedError, ImportError):
    """The installed torch is too old for this package."""

    code = "CAT117"


class TorchFaultError(ConversionError):
    """The installed torch exported an op with a wrong shape or dtype, and other ops read it."""

    code = "CAT116"


class SaveError(CodedError, RuntimeError):
    """An asset or a page cannot be written, for example because the disk is full."""

    code = "CAT118"


class PlanError(CodedError, ValueError):
    """The plan of a fleet run is invalid, or its engine or results cannot be used."""

    code = "CAT119"


class AssetError(ConversionError):
    """A path is not an `.aimodel`, or the asset is damaged."""

    code = "CAT120"


class OverwriteError(ConversionError, FileExistsError):
    """A path has files that this package did not write; also a FileExistsError."""

    code = "CAT121"


class UnknownNameError(NamingError, KeyError):
    """The program has no function or op of this name; also a KeyError."""

    code = "CAT115"

    def __str__(self) -> str:
        """Return the message without the quotes that KeyError adds."""
        return f"{cut_lines(str(self.args[0]))}\n  code  {self.code}"


class NativeError(CodedError, RuntimeError):
    """The compiler or the runtime crashed, hung or failed in its separate process."""

    code = "CAT201"


class NativeTimeout(NativeError):  # noqa: N818  public name
    """The compiler or the runtime took longer than the timeout."""

    code = "CAT202"


class RunError(CodedError, RuntimeError):
    """An op failed while torch ran the program; the message names the op and its location."""

    code = "CAT203"


class GenerationError(CodedError, ValueError):
    """A request to a generator does not fit the converted program."""

    code = "CAT204"


class VerificationError(CodedError, RuntimeError):
    """The numbers of the program differ from torch's; `verdict` has all results."""

    code = "CAT301"

    def __init__(self, verdict: object) -> None:
        """Store the verdict; its text is the message."""
        super().__init__(str(verdict))
        self.verdict = verdict


class UnjudgedError(VerificationError):
    """An output cannot be judged: rounding errors may be as large as its values."""

    code = "CAT303"


class VerificationInputError(CodedError, ValueError):
    """There is nothing to compare: inputs are missing, or the ports differ from the source's."""

    code = "CAT302"


class NarrowingWarning(UserWarning):
    """A 64-bit accumulation may overflow 32 bits, or float64 arithmetic loses digits in float32."""

    code = "CAT401"


class GuardWarning(UserWarning):
    """A program was exported for fewer sizes than its ranges state."""

    code = "CAT402"


class CalibrationWarning(UserWarning):
    """Half precision was measured on the example inputs alone."""

    code = "CAT404"


class TorchVersionWarning(UserWarning):
    """The installed torch is newer than the versions that this package is tested with."""

    code = "CAT403"


def describe(node: fx.Node, problem: str, hint: str) -> str:
    """Return the three-line message: problem, location, hint."""
    return f"{problem}\n  at    {place(node)}\n  try   {hint}"


def located(node: fx.Node, message: str) -> str:
    """Return a message of problem and hint with the location of a node between them."""
    problem, separator, hint = message.partition("\n  try   ")
    if "\n  at    " in problem:
        return message
    return f"{problem}\n  at    {place(node)}{separator}{hint}"


def place(node: fx.Node) -> str:
    """Return the origin of a node: its name, the module, the user's source line."""
    parts = [f"%{node.name} = {target_name(node.target)}", _inside(node), source_line(node)]
    return ", ".join(part for part in parts if part)


def target_name(target: object) -> str:
    """Return `aten.add.Tensor` for an overload, `operator.add` for a function."""
    if callable(target) and hasattr(target, "__module__") and not hasattr(target, "overloadpacket"):
        return f"{target.__module__.lstrip('_')}.{getattr(target, '__name__', target)}"
    return str(target)


def module_path(node: fx.Node) -> str:
    """Return the path of the innermost module of a node, or an empty string."""
    modules = node.meta.get("nn_module_stack") or {}
    if not modules:
        return ""
    path = next(reversed(modules.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def source_line(node: fx.Node) -> str:
    """Return the last `File ...` line of the stack trace, which is in the user's code.

    The last ones of an autograd function are in `<eval_with_key>`, which torch generated.
    """
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    files = [line.strip() for line in trace if line.lstrip().startswith("File ")]
    files = [line for line in files if not line.startswith('File "<')]
    return files[-1] if files else ""


def _inside(node: fx.Node) -> str:
    path = module_path(node)
    return f"in module {path!r}" if path else ""


def unsupported(missing: Iterable[tuple[fx.Node, str]]) -> UnsupportedOpError:
    """Return one error for all missing ops, each with its count, first location and hint."""
    by_target: dict[str, list[tuple[fx.Node, str]]] = {}
    for node, hint in missing:
        by_target.setdefault(target_name(node.target), []).append((node, hint))
    blocks = []
    for target, uses in sorted(by_target.items()):
        node, hint = uses[0]
        times = "once" if len(uses) == 1 else f"{len(uses)} times"
        blocks.append(describe(node, f"no lowering for {target}, used {times}", hint))
    return UnsupportedOpError("\n".join(blocks))


def wrong_count(what: str, given: Sequence[str], existing: Sequence[str]) -> NamingError:
    """Return the error for a list of names with the wrong length; `what` is "input_names"."""
    kind = what.removesuffix("_names")
    return NamingError(
        f"{what} has {len(given)} names, {list(given)}, but the program has {len(existing)} live "
        f"{kind}s: {list(existing)}\n  try   pass one name for each, in this order"
    )


def unknown_attribute(
    module: str, name: str, known: Iterable[str], synonyms: Mapping[str, str] | None = None
) -> AttributeError:
    """Return the error for an unknown name of a module, with the nearest known name."""
    message = f"module {module!r} has no attribute {name!r}"
    near = (synonyms or {}).get(name)
    if near is None and not name.startswith("_"):
        near = next(iter(difflib.get_close_matches(name, list(known), 1)), None)
    return AttributeError(message if near is None else f"{message}; did you mean {near!r}?")
