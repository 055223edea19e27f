"""Train the digit classifier; store its weights and the held-out images next to this file.

Needs the `train` extra. This script wrote the stored files: run it only to change them.
"""

import numpy as np
import torch
from model import HELD_OUT, WEIGHTS, Digits, held_out
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split
from torch import Tensor
from torch.nn.functional import cross_entropy, pad

SEED = 20260
EPOCHS = 60
BATCH = 64


def split() -> tuple[Tensor, Tensor]:
    """Store a quarter of the digits as held-out images and return the rest for training."""
    digits = load_digits()
    images, unseen, labels, unseen_labels = train_test_split(
        digits.images.astype(np.uint8),
        digits.target.astype(np.uint8),
        test_size=0.25,
        random_state=SEED,
        stratify=digits.target,
    )
    np.savez_compressed(HELD_OUT, images=unseen, labels=unseen_labels)
    return torch.from_numpy(images).float().unsqueeze(1), torch.from_numpy(labels).long()


def shifted(images: Tensor) -> Tensor:
    """Shift the batch by up to one pixel to reduce overfitting on the 1347 digits."""
    down, right = torch.randint(0, 3, (2,)).tolist()
    return pad(images, (1, 1, 1, 1))[..., down : down + 8, right : right + 8]


def fit(model: Digits, images: Tensor, labels: Tensor) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=1e-2)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, EPOCHS)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(images)).split(BATCH):
            optimizer.zero_grad()
            cross_entropy(model(shifted(images[chosen])), labels[chosen]).backward()
            optimizer.step()
        schedule.step()


def main() -> None:
    torch.manual_seed(SEED)
    images, labels = split()
    model = Digits().train()
    fit(model, images, labels)
    torch.save(model.eval().state_dict(), WEIGHTS)
    unseen, unseen_labels = held_out()
    with torch.no_grad():
        accuracy = (model(unseen).argmax(1) == unseen_labels).float().mean()
    print(f"{accuracy:.2%} of {len(unseen)} held-out images")


if __name__ == "__main__":
    main()
