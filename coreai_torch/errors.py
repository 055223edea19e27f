"""Every error a user can meet: one line of what, one of where, one of what to do."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch.fx as fx

REGISTER_HINT = "TorchConverter.register_torch_lowering(...) to supply a lowering of your own"
REPORT_HINT = "reporting this with the model: it is a bug of the converter"


class CodedError(Exception):
    """An error with a code that stays: docs/errors.md tells what each means."""

    code = "CAT100"

    def __str__(self) -> str:
        """The message, and the code on a line of its own."""
        return f"{super().__str__()}\n  code  {self.code}"


class ConversionError(CodedError, ValueError):
    """Base of all conversion failures; also a ValueError so callers' handlers keep working."""

    code = "CAT101"


class UnsupportedOpError(ConversionError):
    """Ops of the program that no lowering is registered for, all of them at once."""

    code = "CAT102"


class UnsupportedArgumentError(ConversionError):
    """A lowering exists, but not for this value of this argument."""

    code = "CAT103"


class NotDecomposedError(ConversionError):
    """The program still holds ops that `run_decompositions` would have replaced."""

    code = "CAT104"


class NarrowingError(ConversionError):
    """A 64-bit number that the 32 bits of the devices cannot hold."""

    code = "CAT105"


class WrongResultError(ConversionError):
    """A lowering returned something else than the exported graph promises: our bug."""

    code = "CAT106"


class LoweringError(ConversionError):
    """A lowering failed inside; the cause is chained."""

    code = "CAT107"


class NamingError(ConversionError):
    """Names that do not fit what the program has."""

    code = "CAT108"


class ExportError(ConversionError):
    """The model could not be exported, or `export_fn` returned no decomposed program."""

    code = "CAT109"


class ExternalizeError(ConversionError):
    """A module whose boundary cannot be kept as asked."""

    code = "CAT110"


class KernelError(ConversionError):
    """A Metal kernel, or a call of one, that cannot be right."""

    code = "CAT111"


class ModelCodeError(ConversionError):
    """The code that makes the model failed: its module, its factory, or a call of `sys.exit`."""

    code = "CAT112"


class ArgumentTypeError(ConversionError, TypeError):
    """An argument of another type than the call takes; also a TypeError."""

    code = "CAT113"


class NothingStagedError(ConversionError, RuntimeError):
    """A converter was asked for a program before it was given one; also a RuntimeError."""

    code = "CAT114"


class UnknownNameError(NamingError, KeyError):
    """A function or an operation that the program has not; also a KeyError."""

    code = "CAT115"

    def __str__(self) -> str:
        """The message as it is: a KeyError's own would put it in quotes."""
        return f"{self.args[0]}\n  code  {self.code}"


class NativeError(CodedError, RuntimeError):
    """The compiler or the run time died, hung or refused; it ran in a process of its own."""

    code = "CAT201"


class NativeTimeout(NativeError):  # noqa: N818  a timeout is what it is
    """The compiler or the run time took longer than it was given."""

    code = "CAT202"


class RunError(CodedError, RuntimeError):
    """An op that failed while torch ran the program; tells which, and where it comes from."""

    code = "CAT203"


class GenerationError(CodedError, ValueError):
    """What was asked of a generator does not fit the program that was converted."""

    code = "CAT204"


class VerificationError(CodedError, RuntimeError):
    """The converted program does not give torch's numbers; `verdict` holds all that was seen."""

    code = "CAT301"

    def __init__(self, verdict: object) -> None:
        """Keep the verdict; its text is the message."""
        super().__init__(str(verdict))
        self.verdict = verdict


class VerificationInputError(CodedError, ValueError):
    """What was given to verify cannot be compared: no inputs, or other ports than the source's."""

    code = "CAT302"


class NarrowingWarning(UserWarning):
    """A 64-bit accumulation runs in 32 bits and may overflow."""

    code = "CAT401"


class GuardWarning(UserWarning):
    """A program was exported for fewer sizes than its ranges tell."""

    code = "CAT402"


def describe(node: fx.Node, problem: str, hint: str) -> str:
    """Compose the three-line message: problem, place, way out."""
    return f"{problem}\n  at    {place(node)}\n  try   {hint}"


def place(node: fx.Node) -> str:
    """Where a node comes from: its name, the module, the user's line."""
    parts = [f"%{node.name} = {target_name(node.target)}", _inside(node), source_line(node)]
    return ", ".join(part for part in parts if part)


def target_name(target: object) -> str:
    """`aten.add.Tensor` for an overload, `operator.add` for a function."""
    if callable(target) and hasattr(target, "__module__") and not hasattr(target, "overloadpacket"):
        return f"{target.__module__.lstrip('_')}.{getattr(target, '__name__', target)}"
    return str(target)


def module_path(node: fx.Node) -> str:
    """The path of the innermost module that the node was traced in, or an empty string."""
    modules = node.meta.get("nn_module_stack") or {}
    if not modules:
        return ""
    path = next(reversed(modules.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def source_line(node: fx.Node) -> str:
    """The last `File ...` line of the node's stack trace: the user's own code."""
    trace = (node.meta.get("stack_trace") or "").strip().splitlines()
    files = [line.strip() for line in trace if line.lstrip().startswith("File ")]
    return files[-1] if files else ""


def _inside(node: fx.Node) -> str:
    path = module_path(node)
    return f"in module {path!r}" if path else ""


def unsupported(missing: Iterable[tuple[fx.Node, str]]) -> UnsupportedOpError:
    """One error for all missing ops, each with its count, first place and way out."""
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
    """The message for a list of names of the wrong length."""
    return NamingError(
        f"{what} holds {len(given)} names, {list(given)}, but the program has {len(existing)}: "
        f"{list(existing)}\n  try   one name for each, in this order"
    )
