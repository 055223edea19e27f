"""Recurrent layers of torch."""

from __future__ import annotations

from typing import Any

from .row import Dynamic, Row, normal


def recurrent(kind: str, inputs: int = 6, width: int = 8) -> Any:
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            layers = getattr(nn, kind)
            self.rnn = layers(inputs, width, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(2 * width, 3)

        def forward(self, x: Any) -> Any:
            hidden, _ = self.rnn(x)
            return self.head(hidden)

    return Recurrent()


def _row(kind: str) -> Row:
    return Row(
        kind.lower(),
        "torch",
        "recurrent",
        lambda: recurrent(kind),
        {"x": normal(2, 7, 6)},
        dynamic=Dynamic({"x": (0, 1)}, {"x": normal(3, 11, 6)}),
    )


ROWS = [_row("LSTM"), _row("GRU")]
