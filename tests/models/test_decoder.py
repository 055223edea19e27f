"""Prefill and decode as two entry points of one program that share cache and weights."""

from __future__ import annotations

import asyncio

import pytest
import runtime
import torch
from decoder import Decoder

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.composite_ops import SDPA, RMSNormImpl, RoPE

PROMPT = torch.tensor([[3, 14, 15, 9, 26]])
STEPS = 12
COMPOSITES = [
    ExternalizeSpec(RMSNormImpl, "rms_norm", ["axes", "eps"]),
    ExternalizeSpec(RoPE, "rope", ["scale", "base", "dims", "interleaved"]),
    ExternalizeSpec(SDPA, "scaled_dot_product_attention", ["scale", "is_causal", "window_size"]),
]


def staged(model, specs):
    def export(*args):
        return lambda m: torch.export.export(m, args).run_decompositions(get_decomp_table())

    count = len(model.blocks)
    names = [f"{kind}_{i}" for i in range(count) for kind in ("keys", "values")]
    converter = TorchConverter()
    for entrypoint, tokens, positions in (
        ("prefill", PROMPT, torch.arange(PROMPT.shape[1])),
        ("decode", PROMPT[:, :1], torch.tensor([7])),
    ):
        converter.add_pytorch_module(
            model,
            export(tokens, positions),
            externalize_modules=specs,
            state_names=names,
            output_names=["logits"],
            entrypoint_name=entrypoint,
        )
    return converter.to_coreai(), names


async def generated(program, names, tmp_path):
    asset = program.save_asset(tmp_path / "decoder.aimodel")
    async with asset.executable() as model:
        prefill, decode = (model.load_function(n) for n in ("prefill", "decode"))
        state = {n: runtime.ndarray(torch.zeros(1, 2, 32, 12)) for n in names}
        feeds = {"tokens": PROMPT, "positions": torch.arange(PROMPT.shape[1])}
        tokens = []
        function = prefill
        for position in range(PROMPT.shape[1], PROMPT.shape[1] + STEPS):
            given = {k: runtime.ndarray(v) for k, v in feeds.items()}
            logits = runtime.tensor((await function(given, state=state))["logits"])
            tokens.append(int(logits[0, -1].argmax()))
            feeds = {"tokens": torch.tensor([[tokens[-1]]]), "positions": torch.tensor([position])}
            function = decode
        return tokens


def expected(model):
    tokens, feed, positions = [], PROMPT, torch.arange(PROMPT.shape[1])
    for position in range(PROMPT.shape[1], PROMPT.shape[1] + STEPS):
        tokens.append(int(model(feed, positions)[0, -1].argmax()))
        feed, positions = torch.tensor([[tokens[-1]]]), torch.tensor([position])
    return tokens


@pytest.mark.parametrize("specs", [None, COMPOSITES], ids=["plain", "composites"])
def test_greedy_tokens_equal_torch(tmp_path, specs):
    torch.manual_seed(1)
    model = Decoder().eval()
    program, names = staged(model, specs)
    program.optimize()
    with torch.no_grad():
        want = expected(model)
    assert len(set(want)) > 3
    assert asyncio.run(generated(program, names, tmp_path)) == want
