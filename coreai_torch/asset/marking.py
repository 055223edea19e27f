"""Mark each op of a copy of a program with an id that the runtime reports."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from coreai._compiler import ir
from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir import set_op_location
from coreai._compiler.dialects import debuginfo
from coreai.authoring import AIModelAsset, AIProgram, Context

from . import reading, resources
from .mlir_module import mlir_module_of, write_module


def marked(source: reading.Source, ids: Sequence[int], folder: Path) -> AIModelAsset:
    """Write a copy of the program to the folder, with these ids for its ops, in order."""
    copy = _copy(source, folder)
    module = mlir_module_of(copy)
    with module.context:
        # The runtime drops a fused location without parts, including its metadata.
        source, scope = ir.Location.file("op", 1, 1), ir.FlatSymbolRefAttr.get("main")
        plain = debuginfo.location_attr(src=source, scope=scope)
        for op, number in zip(_ops(module), ids, strict=True):
            own = debuginfo.create_op_id_metadata(dialect_type="coreai", value=number)
            location = debuginfo.location_attr(
                src=source, scope=scope, fused_with=[plain], metadata=[own]
            )
            set_op_location(op, location)
    return copy.save_asset(folder / "marked.aimodel")


def _copy(source: reading.Source, folder: Path) -> AIProgram:
    """Return a copy of the module in a new context; an asset is read again anyway."""
    if isinstance(source, str | Path):
        return resources.asset_and_program(Path(source))[1]
    if isinstance(source, AIModelAsset):
        return resources.program_of(source)
    path = folder / "copy.mlirbc"
    write_module(source, path)
    with Context()._mlir_context:
        return AIProgram._from_mlir_module(ir.Module.parse(path.read_bytes()))


def _ops(module: Any) -> Iterator[Any]:
    """Yield the ops in the order of `reading`: each op before those of its regions."""
    for graph in module.body.operations:
        if graph.operation.name == "coreai.graph":
            yield from _within(graph.operation)


def _within(op: Any) -> Iterator[Any]:
    for region in op.regions:
        for block in region:
            for inner in block.operations:
                yield inner.operation
                yield from _within(inner.operation)
