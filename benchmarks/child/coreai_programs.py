"""Save and count programs of this and the published converter."""

import shutil
import tempfile
from collections import Counter
from pathlib import Path

import torch
from stages import peak_bytes

NAME = "m.aimodel"
LAYOUT = ("coreai.transpose", "coreai.cast", "coreai.broadcast_to", "coreai.broadcast_in_dims")


def folder_bytes(folder):
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def _operations(operation):
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner.operation
                yield from _operations(inner.operation)


def _of_constant(operation):
    owners = [operand.owner for operand in operation.operands]
    return bool(owners) and all(getattr(o, "name", "") == "coreai.constant" for o in owners[:1])


def op_counts(program):
    """Count all ops except constants, and the remaining layout changes of constants."""
    module = getattr(program, "_mlir_module", None) or program._module._mlir_module
    seen, of_constants = Counter(), 0
    for operation in _operations(module.operation):
        seen[operation.name] += 1
        of_constants += operation.name in LAYOUT and _of_constant(operation)
    constants = seen.pop("coreai.constant", 0)
    return {
        "ops": sum(seen.values()),
        "constants": constants,
        "layout_of_constants": of_constants,
        "by_name": dict(seen),
    }


def save(program, stages):
    """Save to a new folder; the caller removes it."""
    folder = Path(tempfile.mkdtemp())
    with stages.timed("save"):
        program.save_asset(folder / NAME)
    return folder


def finish(program, args, stages, repeats, keep):
    """Save a program, keep it with its inputs if `keep` is set, and return its size on disk."""
    for _ in range(repeats - 1):
        shutil.rmtree(save(program, stages))
    folder = save(program, stages)
    found = {"disk_bytes": folder_bytes(folder), "peak": peak_bytes()}
    if keep:
        torch.save(args, folder / "inputs.pt")
        shutil.move(folder, keep)
    else:
        shutil.rmtree(folder)
    return found
