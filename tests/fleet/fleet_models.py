"""Models that fleet plans of the tests convert."""

from __future__ import annotations

import time

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.hidden = nn.Linear(64, 32)
        self.head = nn.Linear(32, 4)

    def forward(self, x):
        return self.head(torch.relu(self.hidden(x)))


def net():
    return Net()


def broken():
    raise ValueError("the weights are missing")


def leaking():
    kept = []
    while True:
        kept.append(torch.ones(4 << 20))
        time.sleep(0.01)
