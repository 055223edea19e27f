"""The rules by which the engine finds stop tokens in `tokenizer_config.json`.

The engine reads no generation config. It stops at the tokenizer's end token and at the tokens that
these rules find.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

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
