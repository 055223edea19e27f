"""List of the supported ops, read from the registry, for the docs and the command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from . import ops as _ops  # noqa: F401  fills the registry
from .lowering.cases import Case, T
from .lowering.registry import BUILTIN, WITHOUT_EXACT, Decomposition, key
from .torch_compat import OP_VERSIONS

_SHORT = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.int64: "int64",
    torch.int32: "int32",
    torch.int16: "int16",
    torch.int8: "int8",
    torch.uint8: "uint8",
    torch.bool: "bool",
    torch.complex64: "complex64",
}


@dataclass(frozen=True)
class Op:
    """One op that can be converted, and the coverage of its tests."""

    name: str  # as in error messages: aten.add.Tensor
    how: str  # "lowered" to the dialect, or "decomposed" into other torch ops
    dtypes: tuple[str, ...]  # of the tensors in its cases
    dynamic: bool  # whether its cases also run with dynamic sizes
    notes: str  # differences from torch; often empty


def supported() -> list[Op]:
    """Return every op with a built-in lowering or decomposition, sorted by name.

    An op that is not listed converts too if torch's default decompositions replace it with listed
    ops.
    """
    missing = (_missing(name) for name in BUILTIN.missing)
    return sorted([*(_op(entry) for entry in BUILTIN), *missing], key=lambda op: op.name)


def _op(entry: Any) -> Op:
    cases = list(entry.cases)
    found = {t.dtype for one in cases for t in _tensors((*one.args, *one.kwargs.values()))}
    fixed = {one.static_only for one in cases if one.static_only}
    dynamic = any(map(_can_vary, cases))
    registered = key(entry.target)
    said = [_first_sentence(entry.fn), _without_exact(entry.fn)]
    notes = [*said, *_static(fixed, dynamic), _versions(registered)]
    return Op(
        name=_name(registered),
        how="decomposed" if isinstance(entry, Decomposition) else "lowered",
        dtypes=tuple(short for dtype, short in _SHORT.items() if dtype in found),
        dynamic=dynamic,
        notes=" ".join(filter(None, notes)),
    )


def _missing(registered: str) -> Op:
    """Return an op that has a lowering, but that the installed torch lacks."""
    return Op(_name(registered), "not in this torch", (), False, _versions(registered))


def _versions(registered: str) -> str:
    """Return which versions of torch have an op, if not all supported ones do."""
    first, last = OP_VERSIONS.get(registered.partition(".")[0], ("", ""))
    if not first and not last:
        return ""
    return f"torch {first} and later." if first else f"torch {last} and before."


def _name(registered: str) -> str:
    """Return `aten.add.Tensor` for `aten::add.Tensor`, `aten.exp.default` for `aten::exp`."""
    namespace, found, rest = registered.partition("::")
    if not found or namespace == "higher_order":
        return rest or namespace
    return f"{namespace}.{rest}" if "." in rest else f"{namespace}.{rest}.default"


def _tensors(given: Iterable[Any]) -> Iterator[T]:
    for one in given:
        if isinstance(one, T):
            yield one
        elif isinstance(one, list | tuple):
            yield from _tensors(one)


def _can_vary(one: Case) -> bool:
    tensors = _tensors((*one.args, *one.kwargs.values()))
    return not one.static_only and any(t.shape and not t.fixed for t in tensors)


def _first_sentence(fn: Any) -> str:
    text = " ".join((fn.__doc__ or "").split("\n\n")[0].split())
    return text if not text or text.endswith(".") else f"{text}."


def _without_exact(fn: Any) -> str:
    """Return the later lines of a docstring that say what differs without `exact=True`."""
    later = (fn.__doc__ or "").split("\n\n")[1:]
    return " ".join(" ".join(p.split()) for p in later if p.strip().startswith(WITHOUT_EXACT))


def _static(reasons: set[str], dynamic: bool) -> list[str]:
    some = "Some arguments need" if dynamic else "Needs"
    return [f"{some} static sizes: {'; '.join(sorted(reasons))}."] if reasons else []
