"""The passes over a program that the Linux runtime loads.

The Linux runtime executes each op as it is stored. These edits keep all numbers and save time: new
rows of the cache are returned and written here, the used rows are read in blocks of memory, keys
are stored with the slots as the last axis, and compressed weights are expanded once instead of in
every step. The bundle does not change, and other machines run it as it is written.
"""

from __future__ import annotations

from pathlib import Path

from ...asset.array_memory import can_write
from ...ir.build import Build
from ...mlir.folding import expanded_bytes, fold_kinds
from . import states

_EXPANDED = (
    "blockwise_shift_scale",
    "dequantize",
    "lut_to_dense",
    "build_sparse_with_bitmask",
    "lut_to_sparse_with_bitmask",
    "sparse_with_bitmask_to_dense",
)
# Loading needs the expanded weights about this many times: in the module, in the compiled file,
# and in the runtime.
_COPIES = 3


def edit(build: Build, expand_weights: bool | None) -> None:
    """Run all passes; compressed weights are expanded by default if the memory suffices."""
    if expand_weights is None:
        expand_weights = _COPIES * expanded_bytes(build, _EXPANDED) <= available_memory()
    if expand_weights:
        fold_kinds(build, _EXPANDED, ("transpose",))
    # The weight of a head that is also the embedding is stored for the embedding.
    transposed = expanded_bytes(build, ("transpose",), of_constants=True)
    if _COPIES * transposed <= available_memory():
        fold_kinds(build, ("transpose",))
    if can_write():
        states.return_rows(build)
    states.split_states(build)


def available_memory() -> int:
    """Return the bytes that Linux can give to this process; 0 if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else 0
