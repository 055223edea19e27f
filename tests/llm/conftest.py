"""Bundles that several test modules share: an export takes seconds."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from decoders import decoder
from tiny_tokenizer import END, END_TURN, tiny_tokenizer

from coreai_torch import llm


@pytest.fixture(scope="session")
def llama_bundle(tmp_path_factory):
    """Return a small Llama with its tokenizer and its bundle."""
    model = decoder("llama", max_position_embeddings=2048, eos_token_id=[END, END_TURN])
    tokenizer = tiny_tokenizer()
    path = tmp_path_factory.mktemp("bundles") / "tiny_llama"
    llm.export(model, path, tokenizer=tokenizer)
    return SimpleNamespace(model=model, tokenizer=tokenizer, path=path)
