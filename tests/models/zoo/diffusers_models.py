"""Denoisers and autoencoders of `diffusers`."""

from __future__ import annotations

from typing import Any

from .row import Row, Tensor, exactly, normal


def _build(class_name: str, config: dict[str, Any]) -> Any:
    import diffusers

    return getattr(diffusers, class_name)(**config)


def _row(
    name: str,
    class_name: str,
    family: str,
    config: dict[str, Any],
    inputs: dict[str, Tensor],
    **more: Any,
) -> Row:
    return Row(
        f"diffusers_{name}",
        "diffusers",
        family,
        lambda: _build(class_name, config),
        inputs,
        source=(class_name, config),
        **more,
    )


_TIME = exactly([7])
_LATENT = normal(1, 4, 16, 16)
_TEXT = normal(1, 5, 16)
_ATTENTION = {"num_attention_heads": 2, "attention_head_dim": 8}
_UNET = {
    "sample_size": 16,
    "block_out_channels": (16, 32),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
    "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
    "up_block_types": ("UpBlock2D", "CrossAttnUpBlock2D"),
}
_VAE = {
    "block_out_channels": (8, 16),
    "layers_per_block": 1,
    "norm_num_groups": 4,
    "latent_channels": 4,
    "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
    "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
    "sample_size": 32,
}

ROWS = [
    _row(
        "unet2d_condition",
        "UNet2DConditionModel",
        "denoiser",
        _UNET,
        {"sample": _LATENT, "timestep": _TIME, "encoder_hidden_states": _TEXT},
    ),
    _row(
        "unet2d",
        "UNet2DModel",
        "denoiser",
        {
            "sample_size": 16,
            "in_channels": 3,
            "out_channels": 3,
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "attention_head_dim": 4,
            "down_block_types": ("DownBlock2D", "AttnDownBlock2D"),
            "up_block_types": ("AttnUpBlock2D", "UpBlock2D"),
        },
        {"sample": normal(1, 3, 16, 16), "timestep": _TIME},
    ),
    _row(
        "controlnet",
        "ControlNetModel",
        "denoiser",
        {
            "block_out_channels": (16, 32),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "cross_attention_dim": 16,
            "attention_head_dim": 4,
            "down_block_types": ("CrossAttnDownBlock2D", "DownBlock2D"),
            "conditioning_embedding_out_channels": (8, 16),
        },
        {
            "sample": _LATENT,
            "timestep": _TIME,
            "encoder_hidden_states": _TEXT,
            "controlnet_cond": normal(1, 3, 32, 32),
        },
    ),
    _row("autoencoder_kl", "AutoencoderKL", "autoencoder", _VAE, {"sample": normal(1, 3, 32, 32)}),
    _row(
        "vq_model",
        "VQModel",
        "autoencoder",
        {
            "block_out_channels": (8, 16),
            "layers_per_block": 1,
            "norm_num_groups": 4,
            "latent_channels": 3,
            "num_vq_embeddings": 32,
            "down_block_types": ("DownEncoderBlock2D", "DownEncoderBlock2D"),
            "up_block_types": ("UpDecoderBlock2D", "UpDecoderBlock2D"),
            "sample_size": 32,
        },
        {"sample": normal(1, 3, 32, 32)},
    ),
    _row(
        "autoencoder_tiny",
        "AutoencoderTiny",
        "autoencoder",
        {
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "num_encoder_blocks": (1, 2),
            "num_decoder_blocks": (2, 1),
        },
        {"sample": normal(1, 3, 32, 32)},
    ),
    _row(
        "autoencoder_dc",
        "AutoencoderDC",
        "autoencoder",
        {
            "in_channels": 3,
            "latent_channels": 4,
            "attention_head_dim": 2,
            "encoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "decoder_block_types": ("ResBlock", "EfficientViTBlock"),
            "encoder_block_out_channels": (8, 8),
            "decoder_block_out_channels": (8, 8),
            "encoder_layers_per_block": (1, 1),
            "decoder_layers_per_block": (1, 1),
            "encoder_qkv_multiscales": ((), (5,)),
            "decoder_qkv_multiscales": ((), (5,)),
            "downsample_block_type": "conv",
            "decoder_norm_types": "rms_norm",
            "decoder_act_fns": "silu",
        },
        {"sample": normal(1, 3, 32, 32)},
    ),
    _row(
        "autoencoder_video",
        "AutoencoderKLCogVideoX",
        "autoencoder",
        {
            "block_out_channels": (8, 8, 8, 8),
            "layers_per_block": 1,
            "norm_num_groups": 2,
            "latent_channels": 4,
            "temporal_compression_ratio": 4,
        },
        {"sample": normal(1, 3, 5, 16, 16)},
    ),
    _row(
        "dit",
        "DiTTransformer2DModel",
        "diffusion transformer",
        dict(
            _ATTENTION,
            in_channels=4,
            out_channels=8,
            num_layers=2,
            sample_size=8,
            patch_size=2,
            norm_num_groups=4,
            num_embeds_ada_norm=1000,
        ),
        {"hidden_states": normal(1, 4, 8, 8), "timestep": _TIME, "class_labels": exactly([3])},
    ),
    _row(
        "pixart",
        "PixArtTransformer2DModel",
        "diffusion transformer",
        dict(
            _ATTENTION,
            in_channels=4,
            out_channels=8,
            num_layers=2,
            sample_size=8,
            patch_size=2,
            cross_attention_dim=16,
            caption_channels=16,
            norm_num_groups=4,
            use_additional_conditions=False,
        ),
        {"hidden_states": normal(1, 4, 8, 8), "timestep": _TIME, "encoder_hidden_states": _TEXT},
    ),
    _row(
        "sd3",
        "SD3Transformer2DModel",
        "diffusion transformer",
        dict(
            _ATTENTION,
            sample_size=16,
            patch_size=2,
            in_channels=4,
            out_channels=4,
            num_layers=2,
            caption_projection_dim=16,
            joint_attention_dim=16,
            pooled_projection_dim=16,
            pos_embed_max_size=8,
        ),
        {
            "hidden_states": _LATENT,
            "encoder_hidden_states": _TEXT,
            "pooled_projections": normal(1, 16),
            "timestep": _TIME,
        },
    ),
    _row(
        "flux",
        "FluxTransformer2DModel",
        "diffusion transformer",
        {
            "patch_size": 1,
            "in_channels": 4,
            "num_layers": 1,
            "num_single_layers": 1,
            "attention_head_dim": 16,
            "num_attention_heads": 2,
            "joint_attention_dim": 16,
            "pooled_projection_dim": 16,
            "axes_dims_rope": (4, 4, 8),
            "guidance_embeds": True,
        },
        {
            "hidden_states": normal(1, 16, 4),
            "encoder_hidden_states": _TEXT,
            "pooled_projections": normal(1, 16),
            "timestep": exactly([0.5]),
            "guidance": exactly([3.5]),
            "img_ids": normal(16, 3),
            "txt_ids": normal(5, 3),
        },
    ),
    _row(
        "sana",
        "SanaTransformer2DModel",
        "diffusion transformer",
        dict(
            _ATTENTION,
            in_channels=4,
            out_channels=4,
            num_layers=1,
            num_cross_attention_heads=2,
            cross_attention_head_dim=8,
            cross_attention_dim=16,
            caption_channels=16,
            sample_size=16,
            patch_size=1,
        ),
        {"hidden_states": _LATENT, "encoder_hidden_states": _TEXT, "timestep": _TIME},
    ),
    _row(
        "cogvideox",
        "CogVideoXTransformer3DModel",
        "diffusion transformer",
        dict(
            _ATTENTION,
            in_channels=4,
            out_channels=4,
            time_embed_dim=8,
            text_embed_dim=16,
            num_layers=1,
            sample_width=8,
            sample_height=8,
            sample_frames=5,
            patch_size=2,
            temporal_compression_ratio=4,
            max_text_seq_length=5,
        ),
        {"hidden_states": normal(1, 2, 4, 8, 8), "encoder_hidden_states": _TEXT, "timestep": _TIME},
    ),
    _row(
        "prior",
        "PriorTransformer",
        "diffusion transformer",
        dict(_ATTENTION, num_layers=2, embedding_dim=16, num_embeddings=5, additional_embeddings=4),
        {
            "hidden_states": normal(1, 16),
            "timestep": _TIME,
            "proj_embedding": normal(1, 16),
            "encoder_hidden_states": _TEXT,
        },
    ),
]
