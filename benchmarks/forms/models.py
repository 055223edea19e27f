"""The measured models: unmodified architectures with random weights."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .program import Made, Program, Tensors

# Rows of the zoo, which have few layers and small pictures, by family.
ZOO = {
    "vision": (
        "vit beit dinov2 convnextv2 mobilevit pvt_v2 swiftformer "
        "timm_mobilenetv4_conv_small_050 timm_ghostnet_050 timm_fastvit_t8 "
        "timm_edgenext_xx_small timm_xcit_nano_12_p16_224 "
        "torchvision_shufflenet_v2_x0_5 torchvision_maxvit torchvision_swin_v2"
    ),
    "dense prediction": (
        "depth_anything dpt glpn segformer detr yolos swin2sr "
        "torchvision_deeplabv3_mobilenet_v3_large "
        "diffusers_unet2d_condition diffusers_autoencoder_kl"
    ),
    "text": "bert distilbert gpt2 qwen2 gemma2 t5",
    "audio": "wav2vec2 audio_spectrogram",
    "multimodal": "clip siglip diffusers_dit",
    "recurrent": "lstm gru",
}


def _calibrated(model: nn.Module) -> nn.Module:
    """Return a model whose norms have statistics and scales other than zero and one."""
    from zoo.judge import _add_noise

    _add_noise(model, 1.0)
    return model


def _from_zoo(name: str) -> Made:
    import zoo

    row = zoo.ROWS[name]
    model = _calibrated(row.build())
    inputs = {name: tensor.make() for name, tensor in row.inputs.items()}
    return Tensors(model, tuple(inputs), row.flags), tuple(inputs.values())


def _picture(size: int) -> tuple[torch.Tensor]:
    return (torch.randn(1, 3, size, size),)


def _torchvision(path: str, size: int = 224, **keywords: Any) -> Made:
    from zoo.torchvision_library import models

    module, _, name = path.rpartition(".")
    model = getattr(models(module), name)(weights=None, **keywords)
    return Tensors(_calibrated(model), (_ARGUMENT.get(name, "x"),), {}), _picture(size)


_ARGUMENT = {"lraspp_mobilenet_v3_large": "input"}


def _timm(name: str, size: int = 224, **keywords: Any) -> Made:
    from zoo.timm_models import build

    return _calibrated(build(name, keywords)), _picture(size)


def _yolo(name: str) -> Made:
    """Return a detector as its library prepares it for an export."""
    from zoo.ultralytics_models import _library

    _library()
    model = importlib.import_module("ultralytics.nn.tasks").DetectionModel(name, verbose=False)
    model.model[-1].export = True
    with torch.no_grad():  # the first call makes the anchors
        _calibrated(model).eval()(*_picture(64))
    return Tensors(model, ("x",), {}), _picture(64)


def _whisper_encoder() -> Made:
    library = importlib.import_module("transformers")
    config = library.WhisperConfig(
        d_model=64, encoder_layers=2, encoder_attention_heads=4, encoder_ffn_dim=128
    )
    encoder = importlib.import_module(
        "transformers.models.whisper.modeling_whisper"
    ).WhisperEncoder(config)
    return Tensors(_calibrated(encoder), ("input_features",), {}), (torch.randn(1, 80, 3000),)


def _qwen3_layer() -> Made:
    module = importlib.import_module("transformers.models.qwen3.modeling_qwen3")
    config = importlib.import_module("transformers").Qwen3Config(
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=16,
    )
    config._attn_implementation = "sdpa"
    layer = _calibrated(module.Qwen3DecoderLayer(config, 0))
    angles = torch.rand(1, 16, 16)
    return _Layer(layer), (torch.randn(1, 16, 64), angles.cos(), angles.sin())


class _Layer(nn.Module):
    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> Any:
        return self.layer(x, position_embeddings=(cosine, sine))


def _unet() -> Made:
    return _UNet(), _picture(64)


class _UNet(nn.Module):
    """The textbook network: convolutions, pools, transposed convolutions and skips."""

    def __init__(self) -> None:
        super().__init__()
        self.down = nn.ModuleList([self._block(3, 8), self._block(8, 16)])
        self.middle = self._block(16, 32)
        self.up = nn.ModuleList([nn.ConvTranspose2d(32, 16, 2, 2), nn.ConvTranspose2d(16, 8, 2, 2)])
        self.join = nn.ModuleList([self._block(32, 16), self._block(16, 8)])
        self.head = nn.Conv2d(8, 2, 1)

    @staticmethod
    def _block(narrow: int, wide: int) -> nn.Module:
        return nn.Sequential(nn.Conv2d(narrow, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept = []
        for block in self.down:
            x = block(x)
            kept.append(x)
            x = nn.functional.max_pool2d(x, 2)
        x = self.middle(x)
        for up, join in zip(self.up, self.join, strict=True):
            x = join(torch.cat([kept.pop(), up(x)], 1))
        out: torch.Tensor = self.head(x)
        return out


_VISION: dict[str, Callable[[], Made]] = {
    "MobileNetV3-Large": lambda: _torchvision("mobilenet_v3_large"),
    "MobileNetV3-Small": lambda: _torchvision("mobilenet_v3_small"),
    "LR-ASPP": lambda: _torchvision(
        "segmentation.lraspp_mobilenet_v3_large", weights_backbone=None
    ),
    "EfficientNet-B0": lambda: _torchvision("efficientnet_b0"),
    "EfficientNetV2-S": lambda: _torchvision("efficientnet_v2_s"),
    "ResNet-18": lambda: _torchvision("resnet18"),
    "ResNet-50": lambda: _torchvision("resnet50"),
    "ConvNeXt-Tiny": lambda: _torchvision("convnext_tiny"),
    "Swin-T": lambda: _torchvision("swin_t"),
    "RegNetY-400MF": lambda: _torchvision("regnet_y_400mf"),
    "MNASNet": lambda: _torchvision("mnasnet0_5"),
    "DenseNet-121": lambda: _torchvision("densenet121"),
    "LeViT-128S": lambda: _timm("levit_128s"),
    "EfficientFormerV2-S0": lambda: _timm("efficientformerv2_s0"),
    "timm MobileNetV3-Large": lambda: _timm("mobilenetv3_large_100"),
    "timm EfficientNet-B0": lambda: _timm("efficientnet_b0"),
    "ViT-Tiny": lambda: _timm("vit_tiny_patch16_224", depth=4),
    "U-Net": _unet,
}
_OTHERS = (
    Program("YOLOv8n", "dense prediction", lambda: _yolo("yolov8n.yaml"), "torchvision", False),
    Program("YOLO11n", "dense prediction", lambda: _yolo("yolo11n.yaml"), "torchvision", False),
    Program("Whisper encoder", "audio", _whisper_encoder, "transformers"),
    Program("Qwen3 layer", "text", _qwen3_layer, "transformers"),
)


def _library(name: str) -> str:
    return name.partition("_")[0] if name.startswith(("timm_", "torchvision_")) else "transformers"


def _made_by(function: Callable[[str], Made], name: str) -> Callable[[], Made]:
    return lambda: function(name)


PROGRAMS: tuple[Program, ...] = (
    *(
        Program(
            name, "vision", make, "timm" if "_timm" in make.__code__.co_names else "torchvision"
        )
        for name, make in _VISION.items()
    ),
    *_OTHERS,
    *(
        Program(name, family, _made_by(_from_zoo, name), _library(name))
        for family, names in ZOO.items()
        for name in names.split()
    ),
)
