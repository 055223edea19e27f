"""Op names as users write them: `namespace::op` or `namespace::op.overload`."""

from __future__ import annotations

import re
from typing import Any

import torch

from ..errors import ConversionError
from ..torch_compat import (
    HigherOrderOperator,
    OpOverload,
    OpOverloadPacket,
    defined_in_python,
    schema_of,
)

RESERVED = ("aten", "higher_order", "coreai", "coreaix")
_FORM = re.compile(r"\w+::\w+(\.\w+)?")


def registered_name(given: Any) -> str:
    """Return the name that a lowering of this op is registered under.

    Raises for an overload that torch does not have, because no node can have it: `aten::add`,
    whose overloads are `Tensor` and `Scalar`. An op that torch does not know may come later.
    """
    if not isinstance(given, str) or not _FORM.fullmatch(given):
        raise ConversionError(
            f"{given!r} is not a qualified op name\n"
            "  try   pass 'namespace::op_name' or 'namespace::op_name.overload'"
        )
    packet, overload = _looked_up(given)
    if isinstance(packet, OpOverloadPacket) and overload not in _of_tensors(packet):
        raise _unknown(given, packet)
    return given.removesuffix(".default")


def is_reserved(name: str) -> bool:
    """Return whether an op of a reserved namespace is not one that the user's program defined.

    `aten` and `higher_order` are torch's: there the definition must be in Python and not in torch.
    """
    namespace = name.partition("::")[0]
    if namespace not in RESERVED:
        return False
    op, _ = _looked_up(name)
    if namespace == "higher_order":
        return op is None or type(op).__module__.startswith("torch.")
    return op is None or (namespace == "aten" and not defined_in_python(name.partition(".")[0]))


def op_namespace(target: Any) -> tuple[str, str]:
    """Return the namespace of a registered target, and its name in there with the overload.

    A Python function, such as `operator.getitem`, has an empty namespace.
    """
    if isinstance(target, HigherOrderOperator):
        return "higher_order", str(target.name())
    if isinstance(target, str):  # of a library that may not be installed, as `torchvision::nms`
        namespace, _, op = target.partition("::")
        return namespace, op if "." in op else f"{op}.default"
    if isinstance(target, OpOverload):
        return str(target.namespace), str(target).partition(".")[2]
    return "", str(target.__name__)


def overload_named(name: str) -> Any:
    """Return the torch overload with a qualified name."""
    packet, overload = _looked_up(name)
    found = getattr(packet, overload, None)
    if found is None:
        raise _unknown(name, packet)
    return found


def _looked_up(name: str) -> tuple[Any, str]:
    namespace, _, rest = name.partition("::")
    op, _, overload = rest.partition(".")
    return getattr(getattr(torch.ops, namespace), op, None), overload or "default"


def _of_tensors(packet: Any) -> list[str]:
    """The overloads that a graph can hold: `aten::add(Scalar a, Scalar b)` is TorchScript's own."""
    found = {name: str(schema_of(getattr(packet, name))) for name in packet.overloads()}
    return [name for name, text in found.items() if "Tensor" in text or text[:6] != "aten::"]


def _unknown(name: str, packet: Any) -> ConversionError:
    base = name.partition(".")[0]
    known = [f"{base}.{overload}" for overload in _of_tensors(packet)] if packet else []
    way = f"one of {known}" if known else "defining it before registering its lowering"
    return ConversionError(f"torch has no op {name!r}\n  try   {way}")
