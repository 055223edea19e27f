"""Checks of the files of a bundle: metadata, assets and tokenizer."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ...program import token_ids
from ..metadata import FILE, GENERATION_KEY, BundleMetadata, problems
from ..model_folder import eos_token_ids
from ..tokenizer_folder import (
    FOLDER,
    chat_template,
    engine_stops,
    load_tokenizer,
    mid_turn,
    turn_end,
)
from ..vision.names import ENGINE_END
from .trial import StepError, Subject


def check_folder(subject: Subject) -> str:
    """Check the metadata, and that all assets exist."""
    bundle = subject.bundle
    if bundle.suffix in (".aimodel", ".aimodelc"):
        raise StepError(f"the folder's name ends in {bundle.suffix}")
    path = bundle / FILE
    if not path.is_file():
        raise StepError(f"{FILE} is missing")
    content = json.loads(path.read_text("utf-8"))
    found = problems(content)
    if not found:
        found = [
            f"the asset {name} is missing"
            for name in content["assets"].values()
            if not (bundle / name).exists() and not (bundle / f"{name}c").exists()
        ]
    if found:
        raise StepError("; ".join(found))
    return f"schema 0.2, {', '.join(content['assets'].values())}"


def check_tokenizer(subject: Subject) -> str:
    """Check the stop tokens and the chat template; keep the tokenizer."""
    folder = subject.bundle / FOLDER
    missing = [
        name
        for name in ("tokenizer.json", "tokenizer_config.json")
        if not (folder / name).is_file()
    ]
    if missing:
        raise StepError(f"{FOLDER} lacks {', '.join(missing)}")
    subject.tokenizer = tokenizer = load_tokenizer(folder)
    stops = engine_stops(folder, tokenizer)
    lost = set(_wanted_stops(subject)) - stops
    if lost:
        raise StepError(f"the engine does not stop at {_texts(tokenizer, lost)}")
    vocabulary = tokenizer.get_vocab()
    early = {vocabulary[text] for text in mid_turn(tokenizer)} & stops
    early -= set(_wanted_stops(subject))
    if early:
        raise StepError(f"the engine stops within a turn at {_texts(tokenizer, early)}")
    return f"stops at {_texts(tokenizer, stops) or 'no token'}; {_check_template(subject, folder)}"


def _wanted_stops(subject: Subject) -> tuple[int, ...]:
    if subject.model is not None:
        return eos_token_ids(subject.model)
    metadata = BundleMetadata.read(subject.bundle)
    stored = json.loads(metadata.user_data.get(GENERATION_KEY, "{}"))
    return token_ids(stored.get("eos_token_id"))


def _texts(tokenizer: Any, ids: set[int]) -> str:
    return ", ".join(map(str, tokenizer.convert_ids_to_tokens(sorted(ids))))


def _check_template(subject: Subject, folder: Path) -> str:
    tokenizer, reference = subject.tokenizer, subject.reference_tokenizer
    template = chat_template(tokenizer)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    if template != config.get("chat_template"):
        raise StepError("the chat template is not in both places")
    if template is None:
        return "no chat template"
    if reference is not None:
        messages = [{"role": "user", "content": "Hello"}]
        rendered = [
            one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            for one in (tokenizer, reference)
        ]
        if rendered[0] != rendered[1]:
            raise StepError("the chat template renders other text than the model's")
    return "chat template"


def check_vision_tokenizer(subject: Subject) -> str:
    """Check the tokenizer; the engine of vision-language bundles has its own stop rule."""
    seen = check_tokenizer(subject)
    tokenizer = subject.tokenizer
    stops = {tokenizer.eos_token, ENGINE_END}
    end = turn_end(tokenizer)
    if end is not None and end not in stops:
        raise StepError(f"the engine does not stop at {end}, which ends a turn")
    image = BundleMetadata.read(subject.bundle).vision or {}
    if tokenizer.convert_ids_to_tokens(image["image_token_id"]) is None:
        raise StepError(f"the tokenizer has no image token {image['image_token_id']}")
    return seen
