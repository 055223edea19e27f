"""Vision models of `timm`, for small images and, where an argument allows it, with few layers."""

from __future__ import annotations

from typing import Any

from . import torchvision_library
from .row import Dynamic, Row, normal


def build(name: str, keywords: dict[str, Any]) -> Any:
    torchvision_library.load()  # timm imports it
    import timm

    return timm.create_model(name, pretrained=False, num_classes=10, **keywords)


def _row(
    name: str,
    size: int = 64,
    *,
    batch: int = 1,
    more: dict[str, Any] | None = None,
    **keywords: Any,
) -> Row:
    return Row(
        f"timm_{name}",
        "timm",
        "vision",
        lambda: build(name, keywords),
        {"x": normal(batch, 3, size, size)},
        **(more or {}),
    )


_DYNAMIC = Dynamic({"x": (0, 2, 3)}, {"x": normal(3, 3, 96, 64)})

ROWS = [
    _row("resnet18", batch=2, more={"dynamic": _DYNAMIC}),
    _row("resnetv2_50", layers=(1, 1, 1, 1)),
    _row("seresnet18"),
    _row("efficientnet_lite0"),
    _row("mobilenetv3_small_050"),
    _row("mobilenetv4_conv_small_050"),
    _row("ghostnet_050"),
    _row("regnetx_002"),
    _row("nfnet_l0"),
    _row("convnext_atto"),
    _row("convnextv2_atto"),
    _row("mixer_s16_224", img_size=64),
    _row("resmlp_12_224", img_size=64),
    _row("vit_tiny_patch16_224", img_size=64, depth=2),
    _row("vit_base_patch16_siglip_224", img_size=64, depth=2, embed_dim=48, num_heads=4),
    _row(
        "beit_base_patch16_224",
        img_size=64,
        depth=2,
        embed_dim=48,
        num_heads=4,
        head_init_scale=1.0,
    ),
    _row("eva02_tiny_patch14_224", 56, img_size=56, depth=2, head_init_scale=1.0),
    _row(
        "swin_tiny_patch4_window7_224",
        img_size=64,
        window_size=4,
        embed_dim=24,
        depths=(2, 2),
        num_heads=(2, 4),
    ),
    _row("efficientvit_b0"),
    _row("fastvit_t8"),
    _row("mobilevitv2_050"),
    _row("repvgg_a0"),
    _row("repvit_m0_9"),
    _row("edgenext_xx_small"),
    _row("xcit_nano_12_p16_224", 64, img_size=64),
    _row("davit_tiny", depths=(1, 1, 1, 1)),
    _row("inception_next_atto"),
    _row("sequencer2d_s", 64, img_size=64, layers=(1, 1, 1, 1)),
    _row("starnet_s1"),
    _row("convit_tiny", 64, img_size=64, depth=4, local_up_to_layer=2),
    _row("halonet26t", 256),
]
