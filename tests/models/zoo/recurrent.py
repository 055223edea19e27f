"""Recurrent layers of torch."""

from __future__ import annotations

from typing import Any

from .row import Dynamic, Row, normal


def _recurrent(kind: str) -> Any:
    from torch import nn

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.rnn = getattr(nn, kind)(6, 8, num_layers=2, batch_first=True, bidirectional=True)
            self.head = nn.Linear(16, 3)

        def forward(self, x: Any) -> Any:
            hidden, _ = self.rnn(x)
            return self.head(hidden)

    return Recurrent()


def _row(kind: str) -> Row:
    return Row(
        kind.lower(),
        "torch",
        "recurrent",
        lambda: _recurrent(kind),
        {"x": normal(2, 7, 6)},
        dynamic=Dynamic({"x": (0, 1)}, {"x": normal(3, 11, 6)}),
    )


ROWS = [_row("LSTM"), _row("GRU")]
