"""Image inputs: uint8 pixels, with the preprocessing of the model inside the program."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import ConversionError
from ..torch_compat import aten

_LAYOUTS = ("HWC", "CHW")
_COLORS = {"RGB": 3, "BGR": 3, "RGBA": 4, "BGRA": 4, "GRAY": 1}

Step = tuple[Any, tuple[Any, ...], dict[str, Any]]  # op, arguments after the first, keywords


@dataclass(frozen=True)
class ImageInput:
    """An input that takes uint8 pixels instead of the numbers that the model takes.

    The program computes `(pixels * scale - mean) / std` in float32, in the layout and the channel
    order of the model, and casts the result to the dtype of the model's input. The model's input
    is `[channels, height, width]` or has a batch axis before these.

    ```python
    photo = coreai_torch.ImageInput(mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))
    network, picture = torch.nn.Conv2d(3, 4, 3).eval(), torch.rand(1, 3, 8, 8)
    program = coreai_torch.convert(network, (picture,), images={"input": photo})
    ```

    Args:
        layout: of the pixels, "HWC" as decoders return them, or "CHW".
        color: the channels of the pixels: "RGB", "BGR", "RGBA", "BGRA" (alpha is ignored), "GRAY".
        scale: the factor of the pixels, 1/255 by default.
        mean: subtracted after scaling; a number, or one for each channel of the model.
        std: the divisor; a number, or one for each channel of the model.
        model_color: the channel order of the model, "RGB" or "BGR".

    The asset stores these arguments: `read_metadata(asset)["images"]` returns them.
    """

    layout: str = "HWC"
    color: str = "RGB"
    scale: float = 1 / 255
    mean: float | Sequence[float] = 0.0
    std: float | Sequence[float] = 1.0
    model_color: str = "RGB"

    def __post_init__(self) -> None:
        """Reject unknown layouts and colors, and numbers that cannot be used."""
        _check_choice("layout", self.layout, _LAYOUTS)
        _check_choice("color", self.color, tuple(_COLORS))
        _check_choice("model_color", self.model_color, ("RGB", "BGR"))
        for name in ("scale", "mean", "std"):
            values = _listed(getattr(self, name))
            usable = values and all(map(math.isfinite, values))
            if not usable or (name != "mean" and 0 in values):
                wanted = "finite numbers" if name == "mean" else "finite numbers other than zero"
                raise ConversionError(
                    f"{name} of an image input is {getattr(self, name)!r}\n  try   pass {wanted}"
                )

    def record(self) -> dict[str, Any]:
        """Return the arguments as an asset stores them."""
        numbers = {name: _plain(getattr(self, name)) for name in ("scale", "mean", "std")}
        return {
            "layout": self.layout,
            "color": self.color,
            **numbers,
            "model_color": self.model_color,
        }

    @property
    def channels(self) -> int:
        """The number of channels that the model takes."""
        return 1 if self.color == "GRAY" else 3

    def check(self, name: str, value: torch.Tensor) -> None:
        """Raise if an input of the model cannot be an image."""
        shape = list(value.shape)
        fits = len(shape) in (3, 4) and shape[-3] == self.channels
        if not fits or not value.is_floating_point():
            dtype = str(value.dtype).removeprefix("torch.")
            raise ConversionError(
                f"the input {name!r} cannot be an image in {self.color}: the model takes {dtype}"
                f"[{', '.join(map(str, shape))}]\n  try   pass images for float inputs of "
                f"[batch, {self.channels}, height, width] or [{self.channels}, height, width] only"
            )
        for what in ("mean", "std"):
            if len(_listed(getattr(self, what))) not in (1, self.channels):
                raise ConversionError(
                    f"{what} of the image input {name!r} is {getattr(self, what)!r}\n"
                    f"  try   pass a number, or {self.channels} numbers"
                )

    def shape(self, of_model: Sequence[Any]) -> list[Any]:
        """Return the shape of the pixels for a shape of the model's input."""
        *batch, _, height, width = of_model
        channels = _COLORS[self.color]
        sizes = [height, width, channels] if self.layout == "HWC" else [channels, height, width]
        return [*batch, *sizes]

    def factors(self) -> tuple[list[float], list[float]]:
        """Return factor and offset of each channel, or one of each if all channels are equal."""
        means, divisors = _listed(self.mean), _listed(self.std)
        count = max(len(means), len(divisors))
        means, divisors = means * (count // len(means)), divisors * (count // len(divisors))
        return (
            [self.scale / std for std in divisors],
            [-mean / std for mean, std in zip(means, divisors, strict=True)],
        )

    def steps(self, rank: int, factor: Any, offset: Any, dtype: torch.dtype) -> Iterator[Step]:
        """Yield the ops that turn pixels into the model's input."""
        if self.layout == "HWC":
            yield aten.permute.default, ([*range(rank - 3), rank - 1, rank - 3, rank - 2],), {}
        if self.color.endswith("A"):
            yield aten.slice.Tensor, (rank - 3, 0, 3), {}
        if self.color != "GRAY" and self.color[:3] != self.model_color:
            yield aten.flip.default, ([rank - 3],), {}
        # Contiguous, as the model was exported with: `view` fails on permuted strides in torch.
        contiguous = {"memory_format": torch.contiguous_format}
        yield aten._to_copy.default, (), {"dtype": torch.float32, **contiguous}
        yield aten.mul.Tensor, (factor,), {}
        if offset is not None:
            yield aten.add.Tensor, (offset,), {}
        if dtype != torch.float32:
            yield aten._to_copy.default, (), {"dtype": dtype}

    def preprocess(self, pixels: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """Return the model's input for pixels, computed in torch."""
        axis, channels = -1 if self.layout == "HWC" else -3, _COLORS[self.color]
        if pixels.dim() < 3 or pixels.shape[axis] != channels:
            raise ConversionError(
                f"pixels of shape {list(pixels.shape)} are not {self.layout} with the {channels} "
                f"channels of {self.color}\n  try   pass such pixels, or another layout or color"
            )
        values = pixels.movedim(-1, -3) if self.layout == "HWC" else pixels
        values = values[..., : self.channels, :, :].to(torch.float32).contiguous()
        if self.color != "GRAY" and self.color[:3] != self.model_color:
            values = values.flip(-3)
        factor, offset = (_column(numbers).to(torch.float32) for numbers in self.factors())
        return (values * factor + offset).to(dtype)

    def pixels(self, value: torch.Tensor) -> torch.Tensor:
        """Return the pixels that come closest to an input of the model."""
        mean, std = (_column(getattr(self, name)) for name in ("mean", "std"))
        values = ((value.detach().double() * std + mean) / self.scale).nan_to_num(0.0)
        pixels = values.round().clamp(0, 255).to(torch.uint8)
        if self.color != "GRAY" and self.color[:3] != self.model_color:
            pixels = pixels.flip(-3)
        if self.color.endswith("A"):
            pixels = torch.cat([pixels, torch.full_like(pixels[..., :1, :, :], 255)], -3)
        return (pixels.movedim(-3, -1) if self.layout == "HWC" else pixels).contiguous()


def _check_choice(name: str, given: str, known: Sequence[str]) -> None:
    if given not in known:
        raise ConversionError(
            f"{name} of an image input is {given!r}\n  try   pass one of {', '.join(known)}"
        )


def _listed(value: float | Sequence[float]) -> list[float]:
    values = value if isinstance(value, Sequence | torch.Tensor) else [value]
    return [float(number) for number in values]


def _plain(value: float | Sequence[float]) -> float | list[float]:
    numbers = _listed(value)
    return numbers if isinstance(value, Sequence | torch.Tensor) else numbers[0]


def _column(value: float | Sequence[float]) -> torch.Tensor:
    return torch.tensor(_listed(value), dtype=torch.float64)[:, None, None]
