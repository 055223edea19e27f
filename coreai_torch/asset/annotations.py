"""What a converted program stores beside its graphs: entries of the metadata of the asset."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset, AIProgram

from .reading import Source
from .resources import asset_at

FORM = "coreai_torch.form"  # {"exact": True} if lowerings emitted the guards of extremes
SIZES = "coreai_torch.sizes"  # by entry point and port: axis to name, bounds and example


def annotation(source: Source, key: str) -> dict[str, Any]:
    """Return an entry of a program or an asset; empty if it has none."""
    if isinstance(source, AIProgram):
        found = getattr(source, "metadata", {}).get(key, {})
    else:
        asset = asset_at(Path(source)) if isinstance(source, str | Path) else source
        if not isinstance(asset, AIModelAsset):  # reported by whoever reads it
            return {}
        found = asset.metadata.creator_defined_metadata.get(key, "{}")
    try:
        read = json.loads(found) if isinstance(found, str) else found
    except ValueError:  # written by others
        return {}
    return dict(read) if isinstance(read, dict) else {}
