"""`metadata.json` of a bundle, schema 0.2."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...asset.replacing import Kind
from ...errors import GenerationError

VERSION = "0.2"
FILE = "metadata.json"
MAIN = "main"
KEYS, VALUES = "keyCache", "valueCache"
# States of a fixed size. The engine takes the first two states as keys and values, whether it lists
# them as stored or by name, and takes a state for a cache if its name contains "cache" or "kv".
CONVOLUTION, RECURRENT = "zConvolution", "zRecurrent"
FIXED_STATES = (CONVOLUTION, RECURRENT)
STATIC_STATES = ("key_cache", "value_cache")
INPUTS = ("input_ids", "position_ids")
LOGITS = "logits"
GENERATION_KEY = "coreai_torch.generation_config"
# The kind of the cache, and the dtype that the model computes in, if the states do not show it.
CACHE_KEY, DTYPE_KEY = "coreai_torch.kv_cache", "coreai_torch.dtype"
RECIPE_KEY = "coreai_torch.compression"  # the text of the YAML file, if there was one
EMBEDDING, VISION = "embedding", "vision"  # roles of the other assets of a vision-language bundle
_KINDS = ("llm", "vlm")
_VISION_SIZES = ("image_size", "patch_size", "image_token_count", "image_token_id")


@dataclass(frozen=True)
class BundleMetadata:
    """The content of `metadata.json` that describes a language model."""

    name: str
    asset: str
    tokenizer: str
    vocab_size: int
    max_context_length: int
    hf_model_id: str | None = None
    compression: str | None = None
    other_assets: Mapping[str, str] = field(default_factory=dict)  # by role
    vision: Mapping[str, Any] | None = None  # sizes and normalization of images
    fixed_states: tuple[str, ...] = ()  # states beside keys and values
    is_static: bool = False  # functions with static shapes, for the Neural Engine
    # Only strings: the engine rejects any other value.
    user_data: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """Return the kind of the bundle."""
        return "llm" if self.vision is None else "vlm"

    @property
    def kv_cache(self) -> str:
        """Return how keys and values are stored: "float" or "int8"."""
        return self.user_data.get(CACHE_KEY, "float")

    def to_json(self) -> str:
        """Return the text of the file."""
        content: dict[str, Any] = {
            "metadata_version": VERSION,
            "kind": self.kind,
            "name": self.name,
            "assets": {MAIN: self.asset, **self.other_assets},
            "language": {
                "tokenizer": self.tokenizer,
                "vocab_size": self.vocab_size,
                "max_context_length": self.max_context_length,
                "embedded_tokenizer": True,
                **self._functions(),
            },
            "source": {"model_definition": "torch", "hf_model_id": self.hf_model_id},
            "compression": self.compression,
            "compilation": {"targets": []},
            "user_data": dict(self.user_data),
        }
        if self.vision is not None:
            content["vision"] = dict(self.vision)
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def _functions(self) -> dict[str, Any]:
        """Return the entries about functions; those of a static bundle have no role."""
        if self.is_static:
            return {"states": dict.fromkeys(STATIC_STATES, "kv_cache")}
        states = (KEYS, VALUES) if self.vision is None else ("k_cache", "v_cache")
        kinds = dict.fromkeys(states, "kv_cache") | dict.fromkeys(self.fixed_states, "fixed")
        return {"function_map": {MAIN: [MAIN]}, "states": kinds}

    @classmethod
    def read(cls, bundle: Path) -> BundleMetadata:
        """Read the file of a bundle; raise if it is not a bundle of a language model."""
        path = bundle / FILE
        if not path.is_file():
            raise GenerationError(
                f"{bundle} is not a bundle: {FILE} is missing\n"
                "  try   write one with coreai_torch.llm.export(model, folder)"
            )
        try:
            content = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise _invalid(path, f"it is not JSON ({error})") from error
        found = problems(content)
        if found:
            raise _invalid(path, "; ".join(found))
        language, source = content["language"], content.get("source") or {}
        states = set(language.get("states") or ())
        return cls(
            name=content["name"],
            asset=content["assets"][MAIN],
            tokenizer=language["tokenizer"],
            vocab_size=language["vocab_size"],
            max_context_length=language["max_context_length"],
            hf_model_id=source.get("hf_model_id"),
            compression=content.get("compression"),
            fixed_states=tuple(one for one in FIXED_STATES if one in states),
            is_static=set(STATIC_STATES) <= states,
            other_assets={role: one for role, one in content["assets"].items() if role != MAIN},
            vision=content["vision"] if content["kind"] == "vlm" else None,
            user_data=content.get("user_data") or {},
        )


def _foreign_names(folder: Path) -> list[str] | None:
    """Return no names for any bundle, of other versions too; others may add files to one."""
    try:
        content = json.loads((folder / FILE).read_text("utf-8"))
    except (OSError, ValueError):
        return None
    named = isinstance(content, dict) and {"metadata_version", "assets"} <= content.keys()
    return [] if named else None


BUNDLE = Kind("a bundle", _foreign_names, hint="pass another folder")


def _invalid(path: Path, reason: str) -> GenerationError:
    return GenerationError(
        f"{path} is invalid: {reason}\n  try   export the bundle again with coreai_torch.llm.export"
    )


def problems(content: Any) -> list[str]:
    """Return everything that makes the engine reject this content."""
    if not isinstance(content, dict):
        return ["it is not a JSON object"]
    found = []
    if content.get("metadata_version") != VERSION:
        found.append(f"metadata_version is {content.get('metadata_version')!r}, not {VERSION!r}")
    if content.get("kind") not in _KINDS:
        found.append(f"kind is {content.get('kind')!r}, not 'llm' or 'vlm'")
    if not isinstance(content.get("name"), str):
        found.append("name is not a string")
    assets = content.get("assets")
    if not isinstance(assets, dict) or not _is_text_map(assets) or MAIN not in assets:
        found.append("assets does not name a main asset")
    user_data = content.get("user_data")
    if user_data is not None and not _is_text_map(user_data):
        found.append("user_data contains values that are not strings")
    if content.get("kind") == "vlm":
        found += _vision_problems(assets, content.get("vision"))
    return found + _language_problems(content.get("language"))


def _vision_problems(assets: Any, vision: Any) -> list[str]:
    found = [
        f"assets does not name the role {role}"
        for role in (EMBEDDING, VISION)
        if not isinstance(assets, dict) or role not in assets
    ]
    if not isinstance(vision, dict):
        return [*found, "vision is missing"]
    return found + [
        f"vision.{name} is {vision.get(name)!r}, not an integer"
        for name in _VISION_SIZES
        if not isinstance(vision.get(name), int) or isinstance(vision.get(name), bool)
    ]


def _language_problems(language: Any) -> list[str]:
    if not isinstance(language, dict):
        return ["language is missing"]
    found = []
    if not isinstance(language.get("tokenizer"), str):
        found.append("language.tokenizer is not a string")
    for name in ("vocab_size", "max_context_length"):
        value = language.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            found.append(f"language.{name} is {value!r}, not a positive integer")
    functions = language.get("function_map")
    if functions is not None and not (
        isinstance(functions, dict) and all(map(_is_text_list, functions.values()))
    ):
        found.append("language.function_map contains values that are not lists of strings")
    return found


def _is_text_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())


def _is_text_list(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(one, str) for one in value)
