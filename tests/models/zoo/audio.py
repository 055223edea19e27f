"""Speech and audio models of `transformers`."""

from __future__ import annotations

from typing import Any

from .row import Row, normal, tokens
from .small_configs import LAYERS, TEXT_TO_TEXT
from .transformers_rows import hf

_SMALL: dict[str, Any] = {
    "vocab_size": 32,
    **LAYERS,
    "conv_dim": (16, 16, 16),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 2),
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
}
_WAVE = {"input_values": normal(1, 1600)}


def _wave(name: str, class_name: str, config: dict[str, Any] = _SMALL, **more: Any) -> Row:
    return hf(name, class_name, "speech", config, more.pop("inputs", _WAVE), **more)


_ENCODEC: dict[str, Any] = {
    "num_filters": 4,
    "hidden_size": 16,
    "codebook_size": 32,
    "codebook_dim": 16,
    "upsampling_ratios": [4, 2],
    "num_lstm_layers": 1,
    "target_bandwidths": [24.0],
    "sampling_rate": 16000,
}

ROWS = [
    hf(
        "whisper",
        "WhisperForConditionalGeneration",
        "speech",
        {
            **TEXT_TO_TEXT,
            "num_mel_bins": 20,
            "max_source_positions": 50,
            "max_target_positions": 32,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        {"input_features": normal(1, 20, 100), "decoder_input_ids": tokens(1, 6)},
        flags={"use_cache": False},
    ),
    _wave("wav2vec2", "Wav2Vec2ForCTC"),
    _wave("hubert", "HubertModel"),
    _wave("wavlm", "WavLMModel", {**_SMALL, "num_buckets": 16, "max_bucket_distance": 32}),
    _wave("sew", "SEWModel", {**_SMALL, "squeeze_factor": 2}),
    _wave(
        "wav2vec2_conformer",
        "Wav2Vec2ConformerModel",
        {**_SMALL, "position_embeddings_type": "relative", "conv_depthwise_kernel_size": 7},
    ),
    hf(
        "wav2vec2_bert",
        "Wav2Vec2BertModel",
        "speech",
        {**_SMALL, "feature_projection_input_dim": 20, "conv_depthwise_kernel_size": 7},
        {"input_features": normal(1, 30, 20)},
    ),
    hf(
        "audio_spectrogram",
        "ASTModel",
        "speech",
        {
            **LAYERS,
            "patch_size": 8,
            "num_mel_bins": 16,
            "max_length": 40,
            "frequency_stride": 8,
            "time_stride": 8,
        },
        {"input_values": normal(1, 40, 16)},
    ),
    hf(
        "speech_to_text",
        "Speech2TextForConditionalGeneration",
        "speech",
        {
            **TEXT_TO_TEXT,
            "max_source_positions": 64,
            "max_target_positions": 32,
            "input_feat_per_channel": 20,
            "conv_channels": 32,
            "decoder_start_token_id": 1,
        },
        {"input_features": normal(1, 60, 20), "decoder_input_ids": tokens(1, 6)},
        flags={"use_cache": False},
    ),
    hf("encodec", "EncodecModel", "codec", _ENCODEC, {"input_values": normal(1, 1, 320)}),
    hf(
        "dac",
        "DacModel",
        "codec",
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_hidden_size": 32,
            "n_codebooks": 2,
            "codebook_size": 32,
            "codebook_dim": 4,
            "hidden_size": 32,
        },
        {"input_values": normal(1, 1, 320)},
    ),
]
