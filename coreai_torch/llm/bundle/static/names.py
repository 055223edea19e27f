"""Names of a static bundle, and the ladder of sizes that its functions have."""

from __future__ import annotations

LOAD, GATHER, EXTEND, PROMPT = "load_embeddings", "gather_embeddings", "extend", "prompt_opt"
TABLE, TOKENS, GATHERED = "embedding_table", "in_new_token_ids", "gathered_embeddings"
INPUT, POSITIONS, STEP, MASK = "transformer_input", "position_ids", "in_step", "causal_mask"
KEYS, VALUES = "key_cache", "value_cache"
LOGITS = "out_logits"
EXTEND_INPUTS = (INPUT, POSITIONS, STEP, MASK, TABLE)

QUERIES = (8, 16, 64)  # numbers of tokens of one call
FIRST_SLOTS = 256
LARGEST_CONTEXT = 65536  # positions are uint16
MASKED = -40000.0  # what the engine adds to the scores of hidden keys


def slots(context: int) -> list[int]:
    """Return the numbers of slots: 256, 512, ... up to the context."""
    ladder = [FIRST_SLOTS]
    while ladder[-1] < context:
        ladder.append(2 * ladder[-1])
    return ladder


def is_context(value: int) -> bool:
    """Return whether a context is the last number of slots of a ladder."""
    return value <= LARGEST_CONTEXT and slots(value)[-1] == value


def largest_context(most: int) -> int | None:
    """Return the largest context of at most this many tokens; None if all are larger."""
    fitting = [one for one in slots(LARGEST_CONTEXT) if one <= most]
    return fitting[-1] if fitting else None


def gather_name(query: int) -> str:
    """Return the name of the function that looks up embeddings of `query` tokens."""
    return f"{GATHER}_{query}"


def step_name(family: str, slots: int, query: int) -> str:
    """Return the name of the function that runs `query` tokens with a number of slots."""
    return f"{family}_{slots}_{query}"


def function_names(context: int) -> list[str]:
    """Return the names of all functions of a bundle with this context."""
    steps = [
        step_name(family, count, query)
        for family in (EXTEND, PROMPT)
        for count in slots(context)
        for query in QUERIES
    ]
    return [LOAD, *map(gather_name, QUERIES), *steps]
