"""A small convolutional network for 8 x 8 gray digits."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights.pt"
HELD_OUT = HERE / "held_out.npz"

BRIGHTEST = 16.0  # the pixels of scikit-learn's digits are counts from 0 to 16


class Digits(nn.Module):
    """Classify images `[batch, 1, 8, 8]` with values from 0 to 16; return ten logits for each."""

    def __init__(self) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.classify = nn.Linear(32 * 2 * 2, 10)

    def forward(self, images: Tensor) -> Tensor:
        return self.classify(self.features(images / BRIGHTEST).flatten(1))


def trained() -> Digits:
    model = Digits()
    model.load_state_dict(torch.load(WEIGHTS, weights_only=True))
    return model.eval()


def held_out() -> tuple[Tensor, Tensor]:
    """Return the images and labels that were not used for training."""
    with np.load(HELD_OUT) as stored:
        images = torch.from_numpy(stored["images"]).float().unsqueeze(1)
        return images, torch.from_numpy(stored["labels"]).long()
