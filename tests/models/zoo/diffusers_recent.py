"""Recent denoisers and autoencoders of `diffusers`."""

from __future__ import annotations

from .diffusers_models import _ATTENTION, _LATENT, _TEXT, _TIME, _row
from .row import Row, exactly, normal, ones

_DIT = "diffusion transformer"

ROWS: list[Row] = [
    _row(
        "wan",
        "WanTransformer3DModel",
        _DIT,
        {
            **_ATTENTION,
            "attention_head_dim": 12,
            "in_channels": 4,
            "out_channels": 4,
            "text_dim": 16,
            "freq_dim": 16,
            "ffn_dim": 32,
            "num_layers": 2,
            "rope_max_seq_len": 32,
        },
        {
            "hidden_states": normal(1, 4, 2, 8, 8),
            "timestep": _TIME,
            "encoder_hidden_states": _TEXT,
        },
    ),
    _row(
        "ltx",
        "LTXVideoTransformer3DModel",
        _DIT,
        {
            **_ATTENTION,
            "in_channels": 4,
            "out_channels": 4,
            "cross_attention_dim": 16,
            "num_layers": 2,
            "caption_channels": 16,
        },
        {
            "hidden_states": normal(1, 32, 4),
            "encoder_hidden_states": _TEXT,
            "timestep": _TIME,
            "encoder_attention_mask": ones(1, 5),
        },
        flags={"num_frames": 2, "height": 4, "width": 4},
    ),
    _row(
        "auraflow",
        "AuraFlowTransformer2DModel",
        _DIT,
        {
            **_ATTENTION,
            "sample_size": 16,
            "in_channels": 4,
            "num_mmdit_layers": 1,
            "num_single_dit_layers": 1,
            "joint_attention_dim": 16,
            "caption_projection_dim": 16,
            "out_channels": 4,
            "pos_embed_max_size": 64,
        },
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "timestep": exactly([0.7])},
    ),
    _row(
        "qwen_image",
        "QwenImageTransformer2DModel",
        _DIT,
        {
            **_ATTENTION,
            "in_channels": 16,
            "out_channels": 4,
            "num_layers": 2,
            "joint_attention_dim": 16,
            "axes_dims_rope": (4, 2, 2),
        },
        {
            "hidden_states": normal(1, 16, 16),
            "encoder_hidden_states": _TEXT,
            "encoder_hidden_states_mask": ones(1, 5),
            "timestep": exactly([0.7]),
        },
        flags={"img_shapes": [[(1, 4, 4)]]},
    ),
    _row(
        "flux2",
        "Flux2Transformer2DModel",
        _DIT,
        {
            **_ATTENTION,
            "in_channels": 16,
            "num_layers": 1,
            "num_single_layers": 1,
            "joint_attention_dim": 16,
            "timestep_guidance_channels": 16,
            "axes_dims_rope": (2, 2, 2, 2),
        },
        {
            "hidden_states": normal(1, 4, 16),
            "encoder_hidden_states": _TEXT,
            "timestep": exactly([0.7]),
            "img_ids": exactly(
                [
                    [0.0, 0.0, 0.0, 0.0],
                    [0.0, 0.0, 1.0, 0.0],
                    [0.0, 1.0, 0.0, 0.0],
                    [0.0, 1.0, 1.0, 0.0],
                ]
            ),
            "txt_ids": exactly([[0.0, 0.0, 0.0, float(n)] for n in range(5)]),
            "guidance": exactly([4.0]),
        },
    ),
    _row(
        "autoencoder_oobleck",
        "AutoencoderOobleck",
        "autoencoder",
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "channel_multiples": [1, 2],
            "decoder_channels": 8,
            "decoder_input_channels": 4,
            "sampling_rate": 16000,
        },
        {"sample": normal(1, 2, 320)},
    ),
    _row(
        "autoencoder_wan",
        "AutoencoderKLWan",
        "autoencoder",
        {
            "base_dim": 4,
            "z_dim": 4,
            "dim_mult": [1, 2],
            "num_res_blocks": 1,
            "temperal_downsample": [True],
            "latents_mean": [0.0] * 4,
            "latents_std": [1.0] * 4,
        },
        {"sample": normal(1, 3, 5, 16, 16)},
    ),
]
