"""A small convolutional network for 8 x 8 grey digits."""

from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

HERE = Path(__file__).parent
WEIGHTS = HERE / "weights.pt"
HELD_OUT = HERE / "held_out.npz"

BRIGHTEST = 16.0  # the digits of scikit-learn are counts from 0 to 16


class Digits(nn.Module):
    """Takes images `[batch, 1, 8, 8]` with values from 0 to 16, gives ten logits for each."""

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
    """The images and labels the network has not seen in training."""
    with np.load(HELD_OUT) as stored:
        images = torch.from_numpy(stored["images"]).float().unsqueeze(1)
        return images, torch.from_numpy(stored["labels"]).long()
