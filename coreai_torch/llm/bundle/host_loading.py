"""Load the program of a bundle in the form that is fastest on this machine, with equal numbers."""

from __future__ import annotations

import warnings
from typing import Any

from coreai.authoring import AIModelAsset

from ...asset.runtime_thread import load_model
from ...errors import ConversionError
from ...targets.linux_loading.compiling import can_edit, load_edited
from ...targets.linux_loading.edits import edit
from ..native import Load


def fast_loading(expand_weights: bool | None) -> Load:
    """Return the function that loads an asset in its fastest form.

    Compressed weights are expanded if `expand_weights`; with None, if the memory suffices.
    """

    async def load(asset: AIModelAsset) -> Any:
        if not can_edit():
            return await load_model(asset)
        try:
            return await load_edited(asset, lambda build: edit(build, expand_weights))
        except ConversionError as error:
            warnings.warn(f"{asset.path} runs as it is written: {error}", stacklevel=2)
            return await load_model(asset)

    return load
