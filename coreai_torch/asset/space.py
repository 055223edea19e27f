"""Check the free space of a disk before a file is written.

coreai-core 1.0.0b3 ends the process when the disk is full: `_save_bytecode` of a program with 4 MB
of weights on a 2 MB disk prints "LLVM ERROR: IO failure on output stream" and exits with code 1.
"""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import NativeError, SaveError
from ..formatting import size

if TYPE_CHECKING:
    from coreai._compiler.ir import RankedTensorType

_MARGIN = 64 << 10  # bytes of metadata, and of a file system's own tables
_PER_OP = 200  # bytes of bytecode that an op takes, rounded up
_FULL = (ENOSPC, EDQUOT)
_FAILED_WRITE = re.compile(r"IO failure on output stream: (.*)")  # LLVM, before it calls exit(1)


def check_space(path: Path, needed: int) -> None:
    """Raise if the disk of a path has less than the needed bytes free."""
    folder = next(parent for parent in path.absolute().parents if parent.exists())
    free = shutil.disk_usage(folder).free
    if free < needed + _MARGIN:
        raise _full(path, f"it needs about {size(needed)}, and {size(free)} are free on {folder}")


@contextmanager
def full_disk_reported(path: Path) -> Iterator[None]:
    """Raise a `SaveError` if the disk is full while the path is written."""
    try:
        yield
    except Exception as cause:
        if getattr(cause, "errno", None) in _FULL or "enough space" in str(cause):
            raise _full(path, "the disk is full") from cause
        failure = _FAILED_WRITE.search(str(cause)) if isinstance(cause, NativeError) else None
        if failure is not None:
            reason = failure[1].strip().lower()
            raise _full(path, "the disk is full" if "no space" in reason else reason) from cause
        raise


def _full(path: Path, reason: str) -> SaveError:
    return SaveError(
        f"{path} could not be saved: {reason}\n  try   free disk space, or pass another output path"
    )


def saved_bytes(module: Any) -> int:
    """Return about how many bytes a module takes on disk: its weights, and a little for each op."""
    from coreai._compiler.ir import Attribute, RankedTensorType  # a fleet report needs no compiler

    weights: dict[int, int] = {}
    count = 0
    for op in _ops(module.body):
        count += 1
        if op.operation.name == "coreai.constant":
            value = op.attributes["value"]
            if type(value) is Attribute:  # a resource; the bindings have no class for it
                weights[hash(value)] = _bytes(RankedTensorType(value.type))
    return sum(weights.values()) + _PER_OP * count


def _ops(block: Any) -> Iterator[Any]:
    for op in block.operations:
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from _ops(inner)


def _bytes(type_: RankedTensorType) -> int:
    name = str(type_.element_type)
    bits = re.search(r"\d+", name)
    parts = 2 if name.startswith("complex") else 1
    return int(math.prod(type_.shape)) * parts * int(bits[0] if bits else 8) // 8
