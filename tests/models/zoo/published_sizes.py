"""Models at their published input size, sequence length and width, with one layer of each kind.

The default configurations of `transformers` and the model names of `timm` have the published
widths. Their depth is reduced where an argument allows it: it changes neither the sizes of the
tensors nor the ops.
"""

from __future__ import annotations

from typing import Any

from .row import Row, Tensor, normal, tokens
from .timm_models import build
from .transformers_rows import hf

ONE_LAYER: dict[str, Any] = {"num_hidden_layers": 1}
_DECODER = {**ONE_LAYER, "use_cache": False}


def _text(name: str, class_name: str, length: int, config: dict[str, Any] | None = None) -> Row:
    inputs = {"input_ids": tokens(1, length, below=30_000)}
    chosen = ONE_LAYER if config is None else config
    return hf(f"{name} {length} tokens", class_name, "encoder", chosen, inputs)


def _image(
    name: str, class_name: str, size: int | tuple[int, int], config: dict[str, Any] | None = None
) -> Row:
    height, width = (size, size) if isinstance(size, int) else size
    inputs = {"pixel_values": normal(1, 3, height, width)}
    chosen = ONE_LAYER if config is None else config
    return hf(f"{name} {height}x{width}", class_name, "vision", chosen, inputs)


def _sound(name: str, class_name: str, inputs: dict[str, Tensor], config: dict[str, Any]) -> Row:
    return hf(name, class_name, "audio", config, inputs)


def _timm(name: str, size: int = 224, **keywords: Any) -> Row:
    row_name = f"timm_{name} {size}x{size}"
    inputs = {"x": normal(1, 3, size, size)}
    return Row(row_name, "timm", "vision", lambda: build(name, keywords), inputs)


_STAGES = {"depths": [1, 1, 1, 1]}
_PAIR = {"input_ids": tokens(1, 512, below=30_000), "decoder_input_ids": tokens(1, 64, below=99)}
_NO_CACHE = {"use_cache": False}

ROWS = [
    _text("mpnet", "MPNetModel", 512, {**ONE_LAYER, "max_position_embeddings": 514}),
    _timm("volo_d1_224"),
    _text("bert", "BertModel", 512),
    _text("roberta", "RobertaModel", 512, {**ONE_LAYER, "max_position_embeddings": 514}),
    _text("distilbert", "DistilBertModel", 512, {"n_layers": 1}),
    _text(
        "albert",
        "AlbertModel",
        512,
        {**ONE_LAYER, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3_072},
    ),
    _text(
        "deberta",
        "DebertaModel",
        512,
        {**ONE_LAYER, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    ),
    _text(
        "deberta_v2",
        "DebertaV2Model",
        512,
        {
            **ONE_LAYER,
            "hidden_size": 768,
            "num_attention_heads": 12,
            "intermediate_size": 3_072,
            "relative_attention": True,
            "pos_att_type": ["p2c", "c2p"],
            "position_buckets": 256,
            "norm_rel_ebd": "layer_norm",
            "share_att_key": True,
        },
    ),
    _text("modernbert", "ModernBertModel", 2_048, {"num_hidden_layers": 2}),
    _text("fnet", "FNetModel", 512),
    _text("convbert", "ConvBertModel", 512),
    _text("xlnet", "XLNetModel", 512, {"n_layer": 1}),
    _text("mobilebert", "MobileBertModel", 512),
    _text("roformer", "RoFormerModel", 1_536),
    _text("funnel", "FunnelModel", 512, {"block_sizes": [1, 1], "num_decoder_layers": 1}),
    _text(
        "longformer",
        "LongformerModel",
        4_096,
        {**ONE_LAYER, "attention_window": [512], "max_position_embeddings": 4_098},
    ),
    _text("gpt2", "GPT2Model", 1_024, {"n_layer": 1, **_NO_CACHE}),
    _text("opt", "OPTModel", 2_048, _DECODER),
    _text(
        "qwen2",
        "Qwen2Model",
        1_024,
        {
            **_DECODER,
            "hidden_size": 896,
            "num_attention_heads": 14,
            "num_key_value_heads": 2,
            "intermediate_size": 4_864,
        },
    ),
    # The library unrolls its scan: the graph has ten nodes for each token, so torch.export of 1,024
    # tokens takes over 90 s.
    _text("mamba", "MambaModel", 256, _DECODER),
    hf(
        "t5 512 tokens",
        "T5Model",
        "encoder-decoder",
        {"num_layers": 1, "num_decoder_layers": 1},
        _PAIR,
        flags=_NO_CACHE,
    ),
    hf(
        "bart 512 tokens",
        "BartModel",
        "encoder-decoder",
        {"encoder_layers": 1, "decoder_layers": 1},
        _PAIR,
        flags=_NO_CACHE,
    ),
    _image("vit", "ViTModel", 224),
    _image("beit", "BeitModel", 224, {**ONE_LAYER, "use_relative_position_bias": True}),
    _image("dinov2", "Dinov2Model", 518, {**ONE_LAYER, "image_size": 518, "patch_size": 14}),
    _image("swin", "SwinModel", 224, {"depths": [2, 1, 1, 1]}),
    _image("swinv2", "Swinv2Model", 256, {"image_size": 256, "depths": [2, 1, 1, 1]}),
    _image("convnextv2", "ConvNextV2Model", 224, _STAGES),
    _image("resnet", "ResNetModel", 224, _STAGES),
    _image("segformer", "SegformerModel", 512, _STAGES),
    _image("glpn", "GLPNModel", (480, 640), _STAGES),
    _image("yolos", "YolosModel", (512, 864)),
    _image("mobilevit", "MobileViTModel", 256, {}),
    _sound(
        "whisper 30 s",
        "WhisperModel",
        {"input_features": normal(1, 80, 3_000), "decoder_input_ids": tokens(1, 64)},
        {
            "encoder_layers": 1,
            "decoder_layers": 1,
            "d_model": 512,
            "encoder_attention_heads": 8,
            "decoder_attention_heads": 8,
            "encoder_ffn_dim": 2_048,
            "decoder_ffn_dim": 2_048,
            **_NO_CACHE,
        },
    ),
    _sound("wav2vec2 10 s", "Wav2Vec2Model", {"input_values": normal(1, 160_000)}, ONE_LAYER),
    _sound("hubert 10 s", "HubertModel", {"input_values": normal(1, 160_000)}, ONE_LAYER),
    _sound("ast 10 s", "ASTModel", {"input_values": normal(1, 1_024, 128)}, ONE_LAYER),
    _timm("resnet18"),
    _timm("resnetv2_50", layers=(1, 1, 1, 1)),
    _timm("efficientnet_lite0"),
    _timm("mobilenetv3_small_050"),
    _timm("mobilenetv4_conv_small_050"),
    _timm("ghostnet_050"),
    _timm("regnetx_002"),
    _timm("convnext_atto"),
    _timm("mixer_s16_224"),
    _timm("resmlp_12_224"),
    _timm("vit_tiny_patch16_224", depth=1),
    _timm("vit_base_patch16_siglip_224", depth=1),
    _timm("beit_base_patch16_224", depth=1),
    _timm("eva02_tiny_patch14_224", depth=1),
    _timm("swin_tiny_patch4_window7_224", depths=(2, 1, 1, 1)),
    _timm("efficientvit_b0"),
    _timm("fastvit_t8", 256),
    _timm("mobilevitv2_050", 256),
    _timm("repvit_m0_9"),
    _timm("edgenext_xx_small", 256),
    _timm("xcit_nano_12_p16_224"),
    _timm("davit_tiny", depths=(1, 1, 1, 1)),
    _timm("inception_next_atto"),
    _timm("sequencer2d_s", layers=(1, 1, 1, 1)),
    _timm("starnet_s1"),
    _timm("convit_tiny", depth=2, local_up_to_layer=1),
    _timm("halonet26t", 256),
    _timm("seresnet18"),
    _timm("nfnet_l0"),
    _timm("convnextv2_atto"),
    _timm("repvgg_a0"),
]

# Zoo rows that have no row at published sizes, and why.
NOT_DERIVED = {
    "vilt": "torch.export rejects it: it branches on the sizes of a mask, and draws patches",
    "qwen2_vl": "torch.export rejects it: it reads sizes off a tensor; see `qwen2_vl_of_one_size`",
    "torchvision_fasterrcnn_whole": (
        "torch.export rejects it: it branches on the number of boxes; its parts are "
        "`torchvision_region_proposals` and `torchvision_faster_rcnn_boxes`"
    ),
}
