"""The cache of a prompt as a file, so that a long prompt runs only once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import torch

from ...errors import GenerationError
from .metadata import KEYS, VALUES
from .rows import Row, RowPool
from .runtime import BundleRuntime
from .runtime import Sequence as Tokens
from .states import States

_SAMPLE = 1 << 16  # bytes at both ends of each file that identify an asset


def fingerprint(runtime: BundleRuntime) -> str:
    """Return a hash that identifies the asset of a bundle."""
    return folder_hash(runtime.bundle / runtime.metadata.asset)


def folder_hash(folder: Path) -> str:
    """Return a hash of the sizes and the ends of all files in a folder."""
    digest = hashlib.sha256()
    for path in sorted(one for one in folder.rglob("*") if one.is_file()):
        length = path.stat().st_size
        digest.update(f"{path.relative_to(folder)} {length}\n".encode())
        with path.open("rb") as file:
            digest.update(file.read(_SAMPLE))
            file.seek(max(length - _SAMPLE, 0))
            digest.update(file.read(_SAMPLE))
    return digest.hexdigest()


def write(path: Path, row: Row, length: int) -> None:
    """Write the first tokens of a row with their keys and values, atomically."""
    from safetensors.torch import save_file

    tensors = {
        name: row.sequence.states.content(name)[:, :, :, :length].cpu().contiguous()
        for name in (KEYS, VALUES)
    }
    tensors |= {name: row.sequence.states.content(name).cpu() for name in row.sequence.states.fixed}
    tensors["tokens"] = torch.tensor(row.tokens[:length], dtype=torch.int32)
    header = {"coreai_torch": json.dumps({"asset": fingerprint(row.sequence.runtime)})}
    if path.is_dir():
        raise GenerationError(f"{path} is a folder\n  try   pass the path of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    save_file(tensors, scratch, header)
    os.replace(scratch, path)


def read(path: Path, runtime: BundleRuntime) -> Row:
    """Return the row in a file; raise if another bundle wrote it."""
    from safetensors import SafetensorError, safe_open

    if not path.is_file():
        raise GenerationError(
            f"no prompt cache was found at {path}\n  try   write one with save_prompt_cache"
        )
    try:
        with safe_open(path, "pt") as file:
            header = json.loads((file.metadata() or {}).get("coreai_torch", "{}"))
            names = ("tokens", KEYS, VALUES, *runtime.fixed)
            tensors = {name: file.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise GenerationError(
            f"{path} is not a prompt cache: {error}\n  try   delete it and write it again"
        ) from error
    if header.get("asset") != fingerprint(runtime):
        raise GenerationError(
            f"{path} belongs to another bundle than {runtime.metadata.name}\n"
            "  try   delete it and write it again with this bundle"
        )
    fixed = {name: tensors[name] for name in runtime.fixed}
    states = States(tensors[KEYS], tensors[VALUES], fixed)
    length = len(tensors["tokens"])
    slots = runtime.grown(runtime.first_slots, length)
    sequence = Tokens(runtime, states.resized(runtime, slots, length))
    sequence.length = length
    return Row(tuple(map(int, tensors["tokens"])), sequence)


@contextmanager
def around(pool: RowPool, rows: Sequence[Sequence[int]], path: Path | str | None) -> Iterator[None]:
    """Read the cache of a prompt from a file before a call, or write it after the call."""
    if path is None:
        yield
        return
    if len(rows) != 1:
        raise GenerationError(
            f"prompt_cache is given for {len(rows)} prompts\n"
            "  try   pass one prompt, or remove prompt_cache"
        )
    file, prompt = Path(path), tuple(rows[0])
    known: Row | None = None
    if file.exists():
        known = read(file, pool.runtime)
        if all(row.shared(prompt) < known.shared(prompt) for row in pool.rows):
            pool.rows = [known.copy()]
    elif pool.runtime.fixed and len(prompt) > 1:
        # States of a fixed size cannot return to a prefix: store them before the last token.
        pool.logits([prompt[:-1]])
        write(file, pool.rows[0], len(prompt) - 1)
    yield
    if pool.runtime.fixed:
        return
    complete = known is not None and known.tokens == prompt
    row = next((one for one in pool.rows if one.tokens[: len(prompt)] == prompt), None)
    if row is not None and not complete:
        write(file, row, len(prompt))
