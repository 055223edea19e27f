"""Encoders and encoder-decoders of `transformers`."""

from __future__ import annotations

from typing import Any

from .row import Dynamic, Row, exactly, ones, tokens
from .small_configs import BART, LANGUAGE
from .transformers_rows import hf

_MASK = exactly([[1] * 9, [1] * 6 + [0] * 3])
_TEXT = {"input_ids": tokens(2, 9), "attention_mask": _MASK}
_SEQUENCE = Dynamic(
    {"input_ids": (0, 1), "attention_mask": (0, 1)},
    {"input_ids": tokens(3, 5), "attention_mask": ones(3, 5)},
)
_PAIR = {**_TEXT, "decoder_input_ids": tokens(2, 5)}


def _encoder(name: str, class_name: str, config: dict[str, Any] = LANGUAGE, **more: Any) -> Row:
    return hf(name, class_name, "encoder", config, _TEXT, **more)


def _pair(name: str, class_name: str, config: dict[str, Any], **more: Any) -> Row:
    flags = {"use_cache": False}
    return hf(name, class_name, "encoder-decoder", config, _PAIR, flags=flags, **more)


_T5 = {"vocab_size": 96, "d_model": 48, "d_kv": 12, "d_ff": 64, "num_layers": 2, "num_heads": 4}
_BART = {
    **BART,
    "decoder_start_token_id": 1,
}

ROWS = [
    _encoder("bert", "BertModel", dynamic=_SEQUENCE),
    _encoder("roberta", "RobertaForSequenceClassification", {**LANGUAGE, "pad_token_id": 1}),
    _encoder(
        "distilbert",
        "DistilBertModel",
        {
            "vocab_size": 96,
            "dim": 48,
            "n_layers": 2,
            "n_heads": 4,
            "hidden_dim": 64,
            "max_position_embeddings": 64,
        },
    ),
    _encoder("albert", "AlbertModel", {**LANGUAGE, "embedding_size": 24}),
    _encoder(
        "deberta",
        "DebertaModel",
        {**LANGUAGE, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    _encoder(
        "deberta_v2",
        "DebertaV2Model",
        {
            **LANGUAGE,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 8,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
            "conv_kernel_size": 3,
        },
    ),
    _encoder("mpnet", "MPNetModel"),
    _encoder(
        "modernbert",
        "ModernBertModel",
        {
            **LANGUAGE,
            "global_attn_every_n_layers": 2,
            "local_attention": 4,
            "cls_token_id": 1,
            "sep_token_id": 2,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "reference_compile": False,
        },
    ),
    hf("fnet", "FNetModel", "encoder", LANGUAGE, {"input_ids": tokens(2, 9)}),
    _encoder("convbert", "ConvBertModel", {**LANGUAGE, "embedding_size": 48, "head_ratio": 2}),
    _encoder(
        "xlnet",
        "XLNetModel",
        {"vocab_size": 96, "d_model": 48, "n_layer": 2, "n_head": 4, "d_inner": 64},
    ),
    _encoder(
        "mobilebert",
        "MobileBertModel",
        {**LANGUAGE, "embedding_size": 24, "intra_bottleneck_size": 24, "true_hidden_size": 24},
    ),
    _encoder("roformer", "RoFormerModel", {**LANGUAGE, "embedding_size": 48}),
    _encoder(
        "esm", "EsmModel", {**LANGUAGE, "position_embedding_type": "rotary", "mask_token_id": 95}
    ),
    _encoder(
        "funnel",
        "FunnelModel",
        {
            "vocab_size": 96,
            "d_model": 48,
            "n_head": 4,
            "d_head": 12,
            "d_inner": 64,
            "block_sizes": [1, 1],
            "num_decoder_layers": 1,
        },
    ),
    _encoder(
        "longformer",
        "LongformerModel",
        {**LANGUAGE, "attention_window": [4, 4], "max_position_embeddings": 80},
        refused="Could not guard on data-dependent expression",
        because="torch.export: the model branches on whether any attention is global",
    ),
    hf(
        "longformer_unmasked",
        "LongformerModel",
        "encoder",
        {**LANGUAGE, "attention_window": [4, 4], "max_position_embeddings": 80},
        {"input_ids": tokens(2, 9)},
    ),
    _pair("t5", "T5ForConditionalGeneration", {**_T5, "decoder_start_token_id": 0}),
    _pair("umt5", "UMT5ForConditionalGeneration", {**_T5, "decoder_start_token_id": 0}),
    _pair("bart", "BartForConditionalGeneration", _BART),
    _pair("marian", "MarianMTModel", _BART),
]
