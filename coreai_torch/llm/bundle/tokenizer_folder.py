"""Write the `tokenizer/` folder of a bundle, and read it as the engine does."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ...errors import ConversionError

PATTERNS = ("end_of_turn", "im_end", "eot_id", "endoftext", "eot_token")
# The engine enables reasoning and tools by these tokens, so a turn may contain them.
MARKERS = (
    "<think>",
    "</think>",
    "<|reasoning_start|>",
    "<|reasoning_end|>",
    "<tool_call>",
    "</tool_call>",
    "<function_calls>",
    "</function_calls>",
    "<|message|>",
)


def text_of(token: Any) -> str | None:
    """Return the text of a token, which is a string or a dictionary with `content`."""
    text = token.get("content") if isinstance(token, Mapping) else token
    return text if isinstance(text, str) else None


def extra_stops(config: Mapping[str, Any]) -> set[str]:
    """Return the texts at which the engine stops besides the end token."""
    ends = config.get("eos_token")
    added = config.get("added_tokens_decoder") or {}
    listed = [
        *(config.get("additional_special_tokens") or []),
        *(ends if isinstance(ends, list) else []),
        *(entry for entry in added.values() if _is_end(entry)),
        *(config[name] for name in PATTERNS if isinstance(config.get(name), str)),
    ]
    return {text for text in map(text_of, listed) if text is not None}


def _is_end(entry: Mapping[str, Any]) -> bool:
    text = text_of(entry) or ""
    return bool(entry.get("special")) and any(pattern in text for pattern in PATTERNS)


def fold_stops(config: dict[str, Any], wanted: Iterable[str], mid_turn: Iterable[str]) -> None:
    """Change a tokenizer configuration so that the engine stops at `wanted` and not in a turn.

    Each token goes to a top-level key that the engine reads; if there are more tokens than keys,
    the others go to `additional_special_tokens`; the engine stops at each of them.
    """
    wanted, inside = list(dict.fromkeys(wanted)), set(mid_turn) - set(wanted)
    config.pop("additional_special_tokens", None)
    for name in PATTERNS:
        if config.get(name) in inside:
            del config[name]
    for entry in (config.get("added_tokens_decoder") or {}).values():
        if text_of(entry) in inside:
            entry["special"] = False
    eos = text_of(config.get("eos_token"))
    if eos is None and wanted:
        config["eos_token"] = eos = wanted[0]
    rest = [text for text in wanted if text != eos and text not in extra_stops(config)]
    for text in list(rest):
        free = [name for name in PATTERNS if name not in config]
        if free:
            config[next((name for name in free if name in text), free[0])] = text
            rest.remove(text)
    if rest:
        config["additional_special_tokens"] = rest


FOLDER = "tokenizer"
_CONFIG = "tokenizer_config.json"
_QUESTION, _ANSWER = "question", "answer"


def write_tokenizer(tokenizer: Any, folder: Path, eos_token_ids: Sequence[int]) -> None:
    """Save a fast tokenizer with its chat template and all end tokens of the model."""
    check_tokenizer(tokenizer, eos_token_ids)
    tokenizer.save_pretrained(folder)
    path = folder / _CONFIG
    config = json.loads(path.read_text("utf-8"))
    # Class names that older readers know: transformers 5 writes the name of its backend.
    if config.get("tokenizer_class") == "TokenizersBackend":
        config["tokenizer_class"] = "PreTrainedTokenizerFast"
    for name in ("is_local", "local_files_only"):  # how it was loaded on this machine
        config.pop(name, None)
    template = chat_template(tokenizer)
    if template is not None:
        config["chat_template"] = template
        (folder / "chat_template.jinja").write_text(template, "utf-8")
    fold_stops(config, map(tokenizer.convert_ids_to_tokens, eos_token_ids), mid_turn(tokenizer))
    path.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", "utf-8")


def check_tokenizer(tokenizer: Any, eos_token_ids: Sequence[int]) -> None:
    """Raise for a tokenizer that the engine cannot load, or that lacks an end token."""
    if not getattr(tokenizer, "is_fast", False):
        raise ConversionError(
            f"{type(tokenizer).__name__} is not a fast tokenizer; a bundle needs tokenizer.json\n"
            "  try   load it with AutoTokenizer.from_pretrained(folder, use_fast=True)"
        )
    missing = [one for one in eos_token_ids if tokenizer.convert_ids_to_tokens(one) is None]
    if missing:
        raise ConversionError(
            f"the generation config ends at the tokens {missing}, which the tokenizer does not "
            "have\n  try   pass the tokenizer of this model, or correct "
            "model.generation_config.eos_token_id"
        )


def chat_template(tokenizer: Any) -> str | None:
    """Return the default chat template."""
    template = tokenizer.chat_template
    if isinstance(template, dict):
        template = template.get("default")
    return template if isinstance(template, str) else None


def mid_turn(tokenizer: Any) -> set[str]:
    """Return the tokens that the model may produce before the end of its turn.

    They are the markers of reasoning and tools, and the special tokens that the chat template puts
    between its generation prompt and the end of an answer.
    """
    vocabulary = tokenizer.get_vocab()
    inside = {marker for marker in MARKERS if marker in vocabulary}
    before, _ = _answer(tokenizer)
    return inside | {one for one in tokenizer.all_special_tokens if one in before}


def turn_end(tokenizer: Any) -> str | None:
    """Return the special token that the chat template puts first after an answer."""
    _, after = _answer(tokenizer)
    found = [(after.find(one), one) for one in tokenizer.all_special_tokens if one in after]
    return min(found)[1] if found else None


def _answer(tokenizer: Any) -> tuple[str, str]:
    """Return the text between the generation prompt and an answer, and the text after it."""
    if chat_template(tokenizer) is None:
        return "", ""
    question = [{"role": "user", "content": _QUESTION}]
    answered = [*question, {"role": "assistant", "content": _ANSWER}]
    try:
        prompt = tokenizer.apply_chat_template(question, tokenize=False, add_generation_prompt=True)
        text = tokenizer.apply_chat_template(answered, tokenize=False)
    except Exception:  # a template may reject any conversation with its own error
        return "", ""
    if not text.startswith(prompt) or _ANSWER not in text[len(prompt) :]:
        return "", ""
    before, _, after = text[len(prompt) :].rpartition(_ANSWER)
    return before, after


def engine_stops(folder: Path, tokenizer: Any) -> set[int]:
    """Return the ids at which the engine stops, by its own rules."""
    config = json.loads((folder / _CONFIG).read_text("utf-8"))
    vocabulary = tokenizer.get_vocab()
    ids = {vocabulary[text] for text in extra_stops(config) if text in vocabulary}
    if tokenizer.eos_token_id is not None:
        ids.add(int(tokenizer.eos_token_id))
    return ids


def load_tokenizer(folder: Path) -> Any:
    """Load the tokenizer of a bundle."""
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(folder)
