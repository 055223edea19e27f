"""A small detector in the manner of YOLO: convolutions, pooled features, decoded boxes."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn


class Convolution(nn.Sequential):
    """Convolution, batch norm and SiLU."""

    def __init__(self, inputs: int, outputs: int, kernel: int = 1, stride: int = 1) -> None:
        super().__init__(
            nn.Conv2d(inputs, outputs, kernel, stride, kernel // 2, bias=False),
            nn.BatchNorm2d(outputs),
            nn.SiLU(),
        )


class Split(nn.Module):
    """Two halves of the channels, one through residual convolutions (C2f)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.first, self.last = Convolution(inputs, outputs), Convolution(3 * half, outputs)
        self.inner = nn.Sequential(Convolution(half, half, 3), Convolution(half, half, 3))

    def forward(self, x: Any) -> Any:
        one, two = self.first(x).chunk(2, 1)
        return self.last(torch.cat([one, two, two + self.inner(two)], 1))


class Pooled(nn.Module):
    """Features and their maxima at three sizes (SPPF)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.first = Convolution(channels, channels // 2)
        self.last = Convolution(2 * channels, channels)
        self.pool = nn.MaxPool2d(5, 1, 2)

    def forward(self, x: Any) -> Any:
        found = [self.first(x)]
        for _ in range(3):
            found.append(self.pool(found[-1]))
        return self.last(torch.cat(found, 1))


class Detector(nn.Module):
    """Boxes in pixels, as expected distances to the four sides, and class scores."""

    BINS, CLASSES, STRIDES = 8, 5, (8, 16)

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(Convolution(3, 16, 3, 2), Convolution(16, 32, 3, 2))
        self.fine = nn.Sequential(Split(32, 32), Convolution(32, 64, 3, 2))
        self.coarse = nn.Sequential(Split(64, 64), Convolution(64, 64, 3, 2), Pooled(64))
        self.up = nn.Upsample(scale_factor=2)
        self.joined = Split(128, 64)
        outputs = 4 * self.BINS + self.CLASSES
        self.heads = nn.ModuleList(
            nn.Sequential(Convolution(64, 64, 3), nn.Conv2d(64, outputs, 1)) for _ in self.STRIDES
        )

    def forward(self, images: Any) -> Any:
        fine = self.fine(self.stem(images))
        coarse = self.coarse(fine)
        levels = (self.joined(torch.cat([fine, self.up(coarse)], 1)), coarse)
        found = [
            self._decoded(*level) for level in zip(levels, self.heads, self.STRIDES, strict=True)
        ]
        return torch.cat(found, 1)

    def _decoded(self, features: Any, head: nn.Module, stride: int) -> Any:
        height, width = features.shape[-2:]
        flat = head(features).flatten(2).mT
        bins, classes = flat.split([4 * self.BINS, self.CLASSES], -1)
        steps = torch.arange(self.BINS, dtype=bins.dtype)
        sides = bins.unflatten(-1, (4, self.BINS)).softmax(-1) @ steps
        rows, columns = torch.meshgrid(torch.arange(height), torch.arange(width), indexing="ij")
        centers = torch.stack([columns, rows], -1).reshape(-1, 2) + 0.5
        low, high = centers - sides[..., :2], centers + sides[..., 2:]
        boxes = torch.cat([(low + high) / 2, high - low], -1) * stride
        return torch.cat([boxes, classes.sigmoid()], -1)
