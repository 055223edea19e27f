"""Recognition finds every norm, rotation and attention in small decoders of transformers."""

from __future__ import annotations

import pytest
import torch
from compat.programs import graphs
from lazy_import import lazy_import
from passes.recognized import assert_runs_as, close, converted, exported
from runtime import descriptor, run, run_steps
from torch import nn

from coreai_torch import TorchConverter

transformers = lazy_import("transformers")

LAYERS = 2
_SMALL = {
    "vocab_size": 64,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_HEADS = {**_SMALL, "head_dim": 8}
_WINDOWS = {"sliding_window": 4, "layer_types": ["sliding_attention", "full_attention"]}
_EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# Class, config, norms per layer (one more follows the last layer), experts per layer.
MODELS = {
    "llama": ("Llama", _SMALL, 2, 0),
    "qwen3": ("Qwen3", _HEADS, 4, 0),  # queries and keys are normalized, too
    "gemma3": ("Gemma3", {**_HEADS, **_WINDOWS}, 6, 0),
    "mistral": ("Mistral", {**_SMALL, "sliding_window": 4}, 2, 0),
    "phi3": ("Phi3", _SMALL, 2, 0),
    "phi3_partial": ("Phi3", {**_SMALL, "partial_rotary_factor": 0.5}, 2, 0),
    "gpt_oss": ("GptOss", {**_HEADS, **_WINDOWS, **_EXPERTS}, 2, 2),
    "mixtral": ("Mixtral", {**_SMALL, **_EXPERTS}, 2, 2),
}
IDS = torch.arange(12).reshape(2, 6) * 5 % 61 + 3


class Decoder(nn.Module):
    def __init__(self, name, attention, dtype=torch.float32):
        super().__init__()
        cls, config, _, _ = MODELS[name]
        kind = "Gemma3TextConfig" if cls == "Gemma3" else f"{cls}Config"
        torch.manual_seed(0)
        made = getattr(transformers, kind)(**config)
        model = getattr(transformers, f"{cls}ForCausalLM")
        self.model = model._from_config(made, attn_implementation=attention).to(dtype)
        self.requires_grad_(False).eval()

    def forward(self, ids):
        return self.model(input_ids=ids, use_cache=False).logits


def expected(name):
    _, _, norms, experts = MODELS[name]
    counts = {
        "rms_norm": norms * LAYERS + 1,
        "rope": 2 * LAYERS,
        "scaled_dot_product_attention": LAYERS,
        "gather_mm": experts * LAYERS,
    }
    return {composite: count for composite, count in counts.items() if count}


def attentions(name):
    return (
        ["eager"] if name == "gpt_oss" else ["eager", "sdpa"]
    )  # sinks exist in eager attention only


def check(name, attention, *, dynamic=False):
    model = Decoder(name, attention)
    dims = {0: torch.export.Dim("batch", max=8), 1: torch.export.Dim("length", min=2, max=32)}
    program, report = converted(model, IDS, dynamic_shapes=(dims,) if dynamic else None)
    assert report.counts == expected(name)
    assert not report.missed
    assert "x2x2x8x8" not in str(program)  # repeated keys would be [batch, groups, copies, ...]
    invoked = [callee for graph in graphs(program).values() for callee in graph.callees]
    assert len(invoked) == sum(expected(name).values())
    longer = torch.arange(27).reshape(3, 9) * 7 % 61 + 3
    assert_runs_as(program, model, (IDS,), *([(longer,)] if dynamic else []))


@pytest.mark.parametrize(
    ("name", "attention", "dynamic"),
    [("llama", "sdpa", True), ("gpt_oss", "eager", False)],
    ids=["llama", "gpt_oss"],
)
def test_all_composites_are_recognized(name, attention, dynamic):
    check(name, attention, dynamic=dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize(
    ("name", "attention"), [(name, how) for name in MODELS for how in attentions(name)]
)
def test_all_composites_are_recognized_in_every_model(name, attention, dynamic):
    check(name, attention, dynamic=dynamic)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", MODELS)
def test_half_precision_models_equal_those_without_recognition(name, dtype):
    """Compare with the program without composites instead of eager.

    The runtime multiplies half-precision matrices differently from eager, which can change the
    choice of a router with close scores.
    """
    program = exported(Decoder(name, attentions(name)[-1], dtype), IDS)
    converter = TorchConverter(recognize=True).add_exported_program(program)
    assert converter.recognition_report.counts == expected(name)
    assert not converter.recognition_report.missed
    plain = TorchConverter().add_exported_program(program).to_coreai()
    (got,), (wanted,) = (
        run(made, {"ids": IDS}).values() for made in (converter.to_coreai(), plain)
    )
    close(got, wanted)


class Cache:
    """Keys and values of each layer, stored in the buffers of a module."""

    def __init__(self, owner, position):
        self._owner, self._position = owner, position

    def get_seq_length(self, *_):
        return 0

    def update(self, key, value, layer, *_, **__):
        kept = []
        for what, new in (("keys", key), ("values", value)):
            buffer = getattr(self._owner, f"{what}_{layer}")
            buffer.index_copy_(2, self._position, new)
            kept.append(buffer)
        return tuple(kept)


class Step(nn.Module):
    """Decode one token at a time with a cache for `length` tokens."""

    def __init__(self, name, attention, length=8):
        super().__init__()
        self.decoder, self.length = Decoder(name, attention), length
        for layer in range(LAYERS):
            for what in ("keys", "values"):
                self.register_buffer(f"{what}_{layer}", torch.zeros(1, 2, length, 8))

    def forward(self, ids, position):
        seen = torch.arange(self.length)[None, None, None] <= position
        mask = torch.where(seen, 0.0, torch.finfo(torch.float32).min)
        masks = {"full_attention": mask, "sliding_attention": mask}
        config = self.decoder.model.config
        result = self.decoder.model(
            input_ids=ids,
            position_ids=position[None],
            attention_mask=masks if getattr(config, "layer_types", None) else mask,
            past_key_values=Cache(self, position),
            use_cache=True,
        )
        return result.logits


@pytest.mark.parametrize(
    ("name", "attention"),
    [("llama", "eager"), *(pytest.param(n, "eager", marks=pytest.mark.slow) for n in ("qwen3",))],
)
def test_decode_step_with_cache_is_recognized(name, attention):
    model = Step(name, attention)
    program, report = converted(model, torch.tensor([[5]]), torch.tensor([0]))
    assert report.counts == expected(name)
    assert not report.missed
    assert "x2x2x8x8" not in str(program)
    tokens = [5, 9, 11, 3]
    names = descriptor(program)
    feeds = [
        {"ids": torch.tensor([[t]]), "position": torch.tensor([i])} for i, t in enumerate(tokens)
    ]
    states = {state: torch.zeros(1, 2, 8, 8) for state in names.state_names}
    got, _ = run_steps(program, feeds, states)
    with torch.no_grad():
        wanted = model.decoder(torch.tensor([tokens]))[:, -1:]
    close(got[names.output_names[0]], wanted)
