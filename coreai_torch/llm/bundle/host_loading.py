"""Load the program of a bundle in the form that is fastest on this machine, with equal numbers.

The Linux runtime executes each op as it is stored. These edits keep all numbers and save time: new
rows of the cache are returned and written here, the used rows are read in blocks of memory, keys
are stored with the slots as the last axis, and compressed weights are expanded once instead of in
every step. The bundle does not change, and other machines run it as it is written.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset

from ...asset.array_memory import can_write
from ...asset.host_program import can_edit, load_edited
from ...asset.host_states import StateEditor
from ...asset.runtime_thread import load_model
from ...errors import ConversionError
from ...interpreter.plan import evaluate
from ..native import Load

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


def fast_loading(expand_weights: bool | None) -> Load:
    """Return the function that loads an asset in its fastest form.

    Compressed weights are expanded if `expand_weights`; with None, if the memory suffices.
    """

    async def load(asset: AIModelAsset) -> Any:
        if not can_edit():
            return await load_model(asset)
        try:
            return await load_edited(asset, lambda module: _edit(module, expand_weights))
        except ConversionError as error:
            warnings.warn(f"{asset.path} runs as it is written: {error}", stacklevel=2)
            return await load_model(asset)

    return load


def _edit(module: Any, expand_weights: bool | None) -> None:
    editor = StateEditor(module)
    if expand_weights is None:
        expand_weights = _COPIES * editor.bytes_of(_EXPANDED) <= available_memory()
    if expand_weights:
        editor.fold(_EXPANDED, ("transpose",), evaluate)
    # The weight of a head that is also the embedding is stored for the embedding.
    if _COPIES * editor.bytes_of(("transpose",), constant=True) <= available_memory():
        editor.fold(("transpose",), (), evaluate)
    if can_write():
        editor.return_rows()
    editor.split_states()


def available_memory() -> int:
    """Return the bytes that Linux can give to this process; 0 if it is not known."""
    try:
        lines = Path("/proc/meminfo").read_text("ascii").splitlines()
    except OSError:
        return 0
    found = [line.split() for line in lines if line.startswith("MemAvailable:")]
    return int(found[0][1]) * 1024 if found else 0
