"""The built-in programs: one for each rule and op family that a converter can emit, and models."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional as f

Build: TypeAlias = Callable[[], "tuple[nn.Module, tuple[Tensor, ...]]"]


@dataclass(frozen=True)
class Case:
    """A model with its inputs, and another form of it if there is one.

    `code` is the rule that it is about. The model is also converted with the rewrites for the
    neural engine, which is a third form if they change it.
    """

    name: str
    build: Build
    code: str = ""
    alternative: Build | None = None
    library: str = ""  # that it needs


class _Call(nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A function between two convolutions, so that a unit has something to leave."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.function = function
        self.first, self.last = nn.Conv2d(8, 8, 3, padding=1), nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x: Tensor) -> Any:
        return self.last(self.function(self.first(x)))


def _picture(size: int = 32) -> Tensor:
    return torch.sin(torch.arange(8.0 * size * size)).reshape(1, 8, size, size).half()


def _between(function: Callable[[Tensor], Any]) -> Build:
    return lambda: (_Call(function).half(), (_picture(),))


def _gathered(x: Tensor) -> Tensor:
    places = x.mean((0, 1, 3)).abs().mul(31).clamp(0, 31).to(torch.int32)
    return x[:, :, places]


def _written(x: Tensor) -> Tensor:
    written = x.clone()
    written[:, :, 3:9] = written[:, :, 10:16]
    return written


def _masked(lowest: float) -> Callable[[Tensor], Tensor]:
    mask = torch.full((32, 32), lowest, dtype=torch.float16).triu(1)
    return lambda x: x.matmul(x.transpose(-1, -2)).add(mask).softmax(-1)


def _looped(x: Tensor) -> Tensor:
    start = torch.zeros((), dtype=torch.int32), x
    body = torch.while_loop(lambda i, y: i < 3, lambda i, y: (i + 1, y * 0.5), start)
    found: Tensor = body[1]
    return found


def _attended(keys: int) -> Callable[[Tensor], Tensor]:
    table = torch.sin(torch.arange(keys * 32.0)).reshape(1, 1, keys, 32).half()

    def attend(x: Tensor) -> Tensor:
        query = x.mean((1, 2), keepdim=True)
        return x + f.scaled_dot_product_attention(query, table, table)

    return attend


def _layer(layer: Callable[[], nn.Module], *shape: int) -> Build:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        numbers = torch.arange(float(math.prod(shape)))
        return layer().half(), (torch.sin(numbers).reshape(shape).half(),)

    return build


class _First(nn.Module):  # type: ignore[misc]
    """The output of a recurrent layer, without its states."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: Tensor) -> Any:
        return self.layer(x)[0]


def _of_rules() -> Sequence[Case]:
    between = _between
    return [
        Case("rank 6", between(lambda x: x.reshape(1, 2, 2, 2, 32, 32).sin().reshape(x.shape)),
             "HAZ07", between(torch.sin)),
        Case("float32 island", between(lambda x: x.float().sin().half()), "HAZ51",
             between(torch.sin)),
        Case("selection", between(lambda x: torch.where(x > 0, x, 0.5 * x)), "PLACE01"),
        Case("bilinear", between(lambda x: f.interpolate(x, scale_factor=2, mode="bilinear")),
             "PLACE03"),
        Case("loop", between(_looped), "HAZ08", between(lambda x: x * 0.125)),
        Case("slice write", between(_written), "PLACE04",
             between(lambda x: torch.cat([x[:, :, :3], x[:, :, 10:16], x[:, :, 9:]], 2))),
        Case("gather", between(_gathered), "HAZ52"),
        Case("sort", between(lambda x: x.sort(-1).values), "HAZ53"),
        Case("topk", between(lambda x: x.topk(16, -1).values), "HAZ53"),
        Case("argmax", between(lambda x: x + x.argmax(-1, keepdim=True)), "HAZ15"),
        Case("cumsum", between(lambda x: x.cumsum(-1)), "PLACE05"),
        Case("group norm", between(lambda x: f.group_norm(x, 4)), "PLACE06",
             between(lambda x: f.layer_norm(x, (32,)))),
        Case("long axis", between(lambda x: x.reshape(1, -1).repeat(1, 9).sin()[:, :8192]
                                  .reshape(x.shape)), "PLACE07"),
        Case("many keys", between(_attended(16500)), "PLACE08", between(_attended(4096))),
        Case("chained products", between(lambda x: x @ x @ x), "PLACE09",
             between(lambda x: x @ x)),
        Case("mask of -inf", between(_masked(float("-inf"))), "PLACE10", between(_masked(-4e4))),
        Case("stride 5", _layer(lambda: nn.Conv2d(8, 8, 5, stride=5), 1, 8, 40, 40), "PLACE11",
             _layer(lambda: nn.Conv2d(8, 8, 5, stride=4), 1, 8, 40, 40)),
        Case("dilated pool", between(lambda x: f.max_pool2d(x, 3, 1, 1, 2)), "PLACE12",
             between(lambda x: f.max_pool2d(x, 3, 1, 1))),
        Case("silu", between(f.silu), "PLACE13"),
        Case("gelu", between(f.gelu), "PLACE14",
             between(lambda x: f.gelu(x, approximate="tanh"))),
        Case("linear", _layer(lambda: nn.Linear(64, 64), 1, 32, 64), "PLACE15",
             _layer(lambda: nn.Conv2d(64, 64, 1), 1, 64, 1, 32)),
    ]  # fmt: skip


def _of_families() -> Sequence[Case]:
    between = _between
    return [
        Case("pad reflect", between(lambda x: f.pad(x, (1, 1, 1, 1), "reflect"))),
        Case("pad zeros", between(lambda x: f.pad(x, (1, 1, 1, 1)))),
        Case("nearest", between(lambda x: f.interpolate(x, scale_factor=2))),
        Case("bicubic", between(lambda x: f.interpolate(x, (40, 40), mode="bicubic"))),
        Case("flip", between(lambda x: x.flip(-1))),
        Case("roll", between(lambda x: x.roll(3, -1))),
        Case("repeat", between(lambda x: x.repeat(1, 1, 2, 1))),
        Case("layer norm", between(lambda x: f.layer_norm(x, (32,)))),
        Case("rms norm", between(lambda x: f.rms_norm(x, (32,)))),
        Case("softmax", between(lambda x: x.softmax(-1))),
        Case("attention", between(lambda x: f.scaled_dot_product_attention(x, x, x))),
        Case("hardswish", between(f.hardswish)),
        Case("softplus", between(f.softplus)),
        Case("mish", between(f.mish)),
        Case("tanh", between(torch.tanh)),
        Case("average pool", between(lambda x: f.avg_pool2d(x, 2))),
        Case("adaptive pool", between(lambda x: f.adaptive_avg_pool2d(x, 5))),
        Case("grid sample", between(lambda x: f.grid_sample(x, x[:, :2].permute(0, 2, 3, 1)))),
        Case("fourier", between(lambda x: torch.fft.rfft(x.float()).real.half())),
        Case("transposed convolution", _layer(lambda: nn.ConvTranspose2d(8, 8, 2, 2), 1, 8, 9, 9)),
        Case("lstm", _layer(lambda: _First(nn.LSTM(32, 32)), 12, 1, 32)),
        Case("gru", _layer(lambda: _First(nn.GRU(32, 32)), 12, 1, 32)),
    ]  # fmt: skip


class _Only(nn.Module):  # type: ignore[misc]
    """The first tensor that a model of transformers returns."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Any:
        found = self.model(x)
        return found[0] if isinstance(found, tuple | list) else next(iter(found.values()))


def _vision(name: str) -> Case:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        models = import_module("torchvision.models")
        return getattr(models, name)(weights=None).half(), (torch.rand(1, 3, 64, 64).half(),)

    return Case(name, build, library="torchvision")


_SMALL = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 64,
}


def _text(name: str, model: str, config: str, **sizes: Any) -> Case:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        library = import_module("transformers")
        made = getattr(library, model)(getattr(library, config)(**sizes))
        return _Only(made.half()), (torch.arange(16, dtype=torch.int32)[None],)

    return Case(name, build, library="transformers")


def _image(name: str, model: str, config: str, **sizes: Any) -> Case:
    def build() -> tuple[nn.Module, tuple[Tensor, ...]]:
        torch.manual_seed(0)
        library = import_module("transformers")
        made = getattr(library, model)(getattr(library, config)(**sizes))
        return _Only(made.half()), (torch.rand(1, 3, 64, 64).half(),)

    return Case(name, build, library="transformers")


CASES: tuple[Case, ...] = (
    *_of_rules(),
    *_of_families(),
    *map(_vision, ("mobilenet_v3_small", "efficientnet_b0", "resnet18", "convnext_tiny")),
    _image("vit", "ViTModel", "ViTConfig", image_size=64, patch_size=16, **_SMALL),
    _image("dinov2", "Dinov2Model", "Dinov2Config", image_size=64, patch_size=16,
           hidden_size=32, num_hidden_layers=2, num_attention_heads=2),
    _image("segformer", "SegformerForSemanticSegmentation", "SegformerConfig",
           hidden_sizes=[8, 16, 24, 32], depths=[1] * 4, num_attention_heads=[1, 2, 3, 4],
           decoder_hidden_size=16),
    _text("bert", "BertModel", "BertConfig", vocab_size=99, **_SMALL),
    _text("gpt2", "GPT2Model", "GPT2Config", vocab_size=99, n_embd=32, n_layer=2, n_head=2,
          bos_token_id=0, eos_token_id=0),
    _text("qwen2", "Qwen2Model", "Qwen2Config", vocab_size=99, num_key_value_heads=2, **_SMALL),
)  # fmt: skip
