"""The program that a conversion returns, for all supported versions of coreai-core."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset, AIProgram, OSVersion
from coreai.authoring.asset import _COREAI_PRODUCER
from coreai.runtime import AIModelAssetMetadata, _AIModelAsset

from ..errors import ConversionError, NativeError, OverwriteError, SaveError
from ..sandbox.step import run_step
from . import resources, space
from .metadata import metadata_text
from .mlir_module import mlir_module_of, optimize, strip
from .replacing import ASSET, check_replaceable, replacing
from .resources import GrowingFile, read_steadily
from .states import OPTIMIZES_ON_REQUEST, find_graph, restore_handles, set_shapes
from .summary import summarize

_NAMED_FIELDS = ("author", "license", "model_description")


class Program(AIProgram):  # type: ignore[misc]  # coreai-core ships no types that mypy follows
    """An `AIProgram` that can be optimized in place and never loses a saved asset.

    A conversion returns an object of the class `AIProgram` itself, which has these methods too:
    see `asset.extension`.
    """

    _optimize_at_save = False
    _is_tested = False  # all ops come from lowerings of this package
    metadata: dict[str, Any]  # saved in the asset, with that given to `save_asset`
    port_notes: tuple[str, ...] = ()  # inputs and outputs whose dtype differs from the model's
    rewrites: Sequence[Any] = ()  # what `target` rewrote, one `Rewritten` for each place
    regions: Any = None  # `RegionCounts` for a target that placement can be estimated for

    @property
    def mlir_module(self) -> Any:
        """The raw MLIR module."""
        return mlir_module_of(self)

    def optimize(self) -> None:
        """Run the compiler's rewrite in place; a second time changes nothing.

        If you registered lowerings or kernels, a child process tries it first on Linux, so a crash
        of the compiler raises a `NativeError`. The ops of built-in lowerings are all tested, and a
        trial takes longer than the rewrite: 61 ms instead of 2.5 with 1 GB of weights.
        """
        if not getattr(self, "_is_tested", False):
            run_step(lambda: optimize_here(self), "optimizing")
        optimize_here(self)

    def _repr_html_(self) -> str:
        """Return what a notebook shows: ports, composites, ops and constants."""
        return str(summarize(self)._repr_html_())

    def __rich__(self) -> Any:
        """Return what rich prints in a terminal."""
        return summarize(self).__rich__()

    def save_asset(
        self,
        path: Path | str,
        metadata: AIModelAssetMetadata | Mapping[str, Any] | None = None,
        minimum_os: OSVersion = OSVersion.v27,
        *,
        overwrite: bool = False,
    ) -> AIModelAsset:
        """Write the asset beside `path`, then move it there; a failure keeps the old asset.

        Only an asset or an empty folder is replaced, unless `overwrite` is true. A converted
        program is optimized first, unless `optimize()` ran before or its converter has
        `optimize=False`. `metadata` may be a dictionary: `author`, `license`, `model_description`,
        and entries of others. An asset stores text only, so other values are stored as JSON.
        Entries of `program.metadata` are stored too; those of `metadata` replace them.
        """
        path, metadata = Path(path), _as_metadata(metadata, getattr(self, "metadata", {}))
        check_path(path, overwrite=overwrite)
        try:
            with space.full_disk_reported(path), replacing(path, ASSET, overwrite=overwrite) as new:
                Program._save(self, path, new, metadata, minimum_os)
        except (SaveError, NativeError, OverwriteError):
            raise
        except Exception as cause:
            raise SaveError(
                f"{path} could not be saved: {cause}\n  try   pass another output path"
            ) from cause
        return read_steadily(path, lambda: AIModelAsset.load(path))

    def _save(self, path: Path, new: Path, metadata: Any, minimum_os: OSVersion) -> None:
        """Write the asset to `new`, which will replace `path`; in a child if possible."""
        pending, bytecode = self._optimize_at_save, GrowingFile(new / resources.BYTECODE)

        def write() -> None:
            if pending:
                optimize_here(self)
            space.check_space(path, space.saved_bytes(self.mlir_module))
            shutil.rmtree(new, ignore_errors=True)
            Program._write(self, new, metadata, minimum_os)

        try:
            if run_step(write, "saving", bytecode.start):
                digest = bytecode.digest()
                if pending:
                    optimize_here(self)
            else:
                write()
                digest = resources.hash_of(new / resources.BYTECODE)
            (new / resources.HASH).write_bytes(digest)
        finally:
            bytecode.stop()

    def _write(self, folder: Path, metadata: Any, minimum_os: OSVersion) -> None:
        """Write the files of the asset but the hash of the bytecode."""
        asset = _AIModelAsset._create(path=str(folder), metadata=metadata)
        self._save_bytecode(asset._program_bytecode_path, minimum_os=minimum_os)
        asset.update_metadata(updates=_stamp)

    def set_static_shape_config(
        self, entrypoint: str, shapes_config: Mapping[str, Mapping[str, Sequence[int]]]
    ) -> None:
        """Replace an entry point by one for each entry of the configuration, with static sizes.

        `shapes_config` maps a suffix of the entry point's name to the shapes of inputs and states.
        With coreai-core 1.0.0b2 the entry point is replaced by `optimize()`, later at once.
        """
        restore_handles(self)
        set_shapes(find_graph(self, entrypoint), shapes_config)
        self._specialized = {
            **getattr(self, "_specialized", {}),
            entrypoint: [entrypoint + "_" + key.strip('"') for key in shapes_config],
        }
        self._optimize_at_save = True
        self._is_tested = False
        if not OPTIMIZES_ON_REQUEST:
            self.optimize()


def optimize_here(program: Any) -> None:
    """Run the compiler's rewrite in this process."""
    optimize(mlir_module_of(program))
    if getattr(program, "_optimize_at_save", False):
        program._optimize_at_save = False


def check_path(path: Path, *, overwrite: bool = False) -> None:
    """Raise if no asset can be saved at the path, before any work is done."""
    if path.suffix != ".aimodel":
        named = path.with_suffix(".aimodel") if path.name.strip(".") else path / "model.aimodel"
        raise ConversionError(
            f"an asset's path ends in .aimodel, {str(path)!r} ends in {path.suffix!r}\n"
            f"  try   pass {str(named)!r}"
        )
    parent = next(folder for folder in path.absolute().parents if folder.exists())
    if not (parent.is_dir() and os.access(parent, os.W_OK)):
        raise PermissionError(f"{path} cannot be written: {parent} is not a writable folder")
    check_replaceable(path, ASSET, overwrite=overwrite)


def stripped(source: Path, target: Path, *, overwrite: bool = False) -> AIModelAsset:
    """Save an asset without locations: no files, lines or module paths."""
    asset, stored = resources.asset_and_program(source)
    module = mlir_module_of(stored)
    strip(module)
    program: Program = Program._from_mlir_module(module)
    return program.save_asset(target, asset.metadata, overwrite=overwrite)


def _as_metadata(given: Any, own: Mapping[str, Any]) -> Any:
    """Return metadata of the asset; entries that are given replace the program's own."""
    if isinstance(given, AIModelAssetMetadata):
        return _with_own(given, own) if own else given
    if given is None and not own:
        return given
    given = {} if given is None else given
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        # The function of the runtime silently drops unknown entries.
        raise TypeError(
            f"metadata is {given!r}\n  try   a dictionary with names as keys, or an "
            "AIModelAssetMetadata"
        )
    made = AIModelAssetMetadata()
    for name, value in {**own, **given}.items():
        text = metadata_text(name, value)
        if name in _NAMED_FIELDS:
            setattr(made, name, text)
        else:
            made.set_custom(name, text)
    return made


def _with_own(given: Any, own: Mapping[str, Any]) -> Any:
    """Return the program's own metadata with the entries of `given`, which is not changed."""
    made = _as_metadata(None, own)
    for name in _NAMED_FIELDS:
        setattr(made, name, getattr(given, name) or getattr(made, name))
    for name, value in given.creator_defined_metadata.items():
        made.set_custom(name, value)
    return made


def _stamp(metadata: Any) -> None:
    metadata.creation_date = time.time()
    metadata._producer = _COREAI_PRODUCER
