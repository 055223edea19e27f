"""Read the metadata of an asset: author, license, description, labels and other entries."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from coreai.authoring import AIModelAsset, AIProgram

from ..errors import ArgumentTypeError
from . import resources
from .reading import Source
from .resources import asset_at

LABELS, IMAGES, RANDOM, ASSUMPTIONS = "labels", "images", "random", "assumptions"
_OWN = "coreai_torch."
_NAMED = ("author", "license", "model_description")


def read_metadata(source: Source) -> dict[str, Any]:
    """Return the metadata of an asset or a program, by name.

    `labels` is a dictionary from outputs to lists of labels, and `images` one from image inputs to
    the arguments of their `ImageInput`: `color` is the channel order of the pixels. `random` has
    what each input of random numbers is filled with, and `assumptions` what the program assumes
    about the values of inputs. Other entries
    of an asset are texts; `json.loads` reads those that were saved from other values.

    ```python
    linear, x = torch.nn.Linear(8, 2), torch.randn(2, 8)
    names = {"labels": {"y": ["cat", "dog"]}, "output_names": ["y"]}
    coreai_torch.convert(linear, (x,), output="net.aimodel", **names)
    labels = coreai_torch.read_metadata("net.aimodel")["labels"]["y"]
    ```

    Args:
        source: the path of an `.aimodel`, an `AIModelAsset` or a converted program.
    """
    if isinstance(source, str | Path):
        source = resources.asset_at(Path(source))
    if not isinstance(source, AIModelAsset):
        return _without_own(getattr(source, "metadata", {}))
    stored = source.metadata
    found: dict[str, Any] = {n: v for n in _NAMED if (v := getattr(stored, n, None))}
    found.update(dict(stored.creator_defined_metadata or {}))
    for name in (LABELS, IMAGES, RANDOM, ASSUMPTIONS):
        if name in found:
            found[name] = _stored(found[name])
    return _without_own(found)


def check_metadata(metadata: Any) -> dict[str, Any]:
    """Return metadata; raise if it is not a dictionary, or an asset cannot store it."""
    if metadata is not None and not isinstance(metadata, Mapping):
        raise ArgumentTypeError(f"metadata is {metadata!r}\n  try   pass a dictionary")
    for name, value in (metadata or {}).items():
        metadata_text(name, value)
    return dict(metadata or {})


def metadata_text(name: Any, value: Any) -> str:
    """Return an entry as the text that an asset stores; raise if JSON cannot express it."""
    if not isinstance(name, str):
        raise ArgumentTypeError(f"metadata has the name {name!r}\n  try   pass a str as the name")
    if isinstance(value, str):
        return value
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as cause:
        raise ArgumentTypeError(
            f"metadata: {name!r} is a {type(value).__name__} that JSON cannot express: {cause}\n"
            "  try   pass texts, numbers, lists and dictionaries"
        ) from cause


def _without_own(entries: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries that a user stored; the others describe the graphs."""
    return {name: value for name, value in entries.items() if not name.startswith(_OWN)}


def _stored(text: str) -> Any:
    """Return an entry as `convert` wrote it; another text stays as it is."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def labels_of(metadata: dict[str, Any]) -> dict[str, list[str]]:
    """Return the labels of each output, if the entry was written by `convert`."""
    found = metadata.get(LABELS)
    return found if isinstance(found, dict) else {}


def images_of(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return the arguments of each image input, if the entry was written by `convert`."""
    found = metadata.get(IMAGES)
    given = found if isinstance(found, dict) else {}
    return {n: v for n, v in given.items() if isinstance(v, dict) and {"layout", "color"} <= set(v)}


def random_of(metadata: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return what each input of random numbers is filled with, if `convert` wrote the entry."""
    found = metadata.get(RANDOM)
    given = found if isinstance(found, dict) else {}
    return {n: v for n, v in given.items() if isinstance(v, dict) and "kind" in v}


def assumptions_of(metadata: Mapping[str, Any]) -> list[dict[str, str]]:
    """Return what the program assumes about the values of inputs, if `convert` wrote the entry."""
    found = metadata.get(ASSUMPTIONS)
    given = found if isinstance(found, list) else []
    return [one for one in given if isinstance(one, dict) and {"condition", "line"} <= set(one)]


def random_text(record: Mapping[str, Any]) -> str:
    """Describe what an input of random numbers is filled with."""
    texts = {
        "uniform": "uniform numbers from 0 to 1, without 1",
        "normal": "numbers with a mean of 0 and a standard deviation of 1",
        "integers": f"integers from {record.get('low')} to {record.get('high')}, without the last",
        "seed": "any integer; equal seeds give equal results",
    }
    return texts.get(record["kind"], str(record["kind"]))


def image_text(image: Mapping[str, Any]) -> str:
    """Describe an image input: the layout and the channel order of its pixels."""
    numbers = ", ".join(f"{n} {image[n]}" for n in ("scale", "mean", "std") if n in image)
    order = f"{image['layout']} pixels in the channel order {image['color']}"
    return f"{order} ({numbers})" if numbers else order


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
