"""Check and wrap the lowerings that users register."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from ..errors import ArgumentTypeError, ConversionError
from .entry import Entry
from .legacy import LegacyLowering
from .op_names import RESERVED, is_reserved, overload_named, registered_name
from .registry import Lowering, Registry


def checked_name(registry: Registry, qualified_name: str, allow_override: bool) -> str:
    """Return the name to register a lowering under; raise if that needs `allow_override`."""
    name = registered_name(qualified_name)
    if allow_override:
        return name
    namespace = name.partition("::")[0]
    if registry.get(name) is not None:
        note = f": the namespace {namespace!r} is built in" if namespace in RESERVED else ""
        raise ConversionError(
            f"a lowering of {qualified_name!r} is already registered{note}\n"
            "  try   pass allow_override=True to replace it"
        )
    if is_reserved(name):
        raise ConversionError(
            f"{qualified_name!r}: the namespace {namespace!r} is built in, and your program does "
            "not define this op\n  try   define it in torch before registering its lowering, or "
            "pass allow_override=True"
        )
    return name


def entry_of(name: str, fn: Callable[..., Any]) -> Entry:
    """Return the entry for a user's function, whose first parameter tells its form."""
    if not callable(fn):
        raise ArgumentTypeError(
            f"a lowering is a function, not {fn!r}\n  try   decorate a function"
        )
    if next(iter(inspect.signature(fn).parameters), None) != "ctx":
        return LegacyLowering(name, fn)
    entry = Lowering(overload_named(name), fn, origin="registered")
    entry.signature  # noqa: B018  raise for a mismatch with the schema now, not later
    return entry
