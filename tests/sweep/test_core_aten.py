"""Every overload of core ATen, the opset of `torch.export`, is lowered or decomposed."""

from __future__ import annotations

import torch

import coreai_torch
from coreai_torch.lowering.registry import BUILTIN

_RANDOM = "draws random numbers: convert(random=...) decomposes it"
_WRITES = "writes to an argument: export uses the functional form"

EXCEPTIONS = {
    "aten::rand": _RANDOM,
    "aten::randn": _RANDOM,
    "aten::randperm": _RANDOM,
    "aten::_native_batch_norm_legit": _WRITES,
    "aten::atan2.out": _WRITES,
    "aten::resize_": _WRITES,
    "aten::sym_storage_offset": "used only by as_strided of a view, and export resolves views",
}


def _core():
    """Return the overloads tagged as core, by name."""
    found = {}
    for schema in torch._C._jit_get_all_schemas():
        namespace, _, op = schema.name.partition("::")
        packet = getattr(torch.ops.aten, op, None) if namespace == "aten" else None
        overload = getattr(packet, schema.overload_name or "default", None)
        if overload is not None and torch.Tag.core in overload.tags:
            found[overload.name()] = overload
    return found


def test_every_core_overload_is_lowered_or_decomposed():
    core = _core()
    assert len(core) > 180, "the list of core overloads is too short: the tag has changed"
    table = coreai_torch.get_decomp_table()
    covered = BUILTIN.names() | {op.name() for op in table if isinstance(op, torch._ops.OpOverload)}
    assert sorted(core.keys() - covered - EXCEPTIONS.keys()) == []


def test_exceptions_are_core_and_not_lowered():
    assert sorted(EXCEPTIONS.keys() - _core().keys()) == []
    assert sorted(EXCEPTIONS.keys() & BUILTIN.names()) == []
