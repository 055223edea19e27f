"""Sequences in the cache, and which part of a request they already contain."""

from __future__ import annotations

from collections.abc import Sequence as Items
from dataclasses import dataclass

import torch
from torch import Tensor

from .runtime import BundleRuntime, Sequence


@dataclass
class Row:
    """A sequence in the cache with its tokens."""

    tokens: tuple[int, ...]
    sequence: Sequence

    def shared(self, wanted: Items[int]) -> int:
        """Return how many first tokens of a request are in the cache.

        The last token of the request never counts: its logits are needed. With states of a fixed
        size, a request must continue all tokens of the row.
        """
        most = min(len(self.tokens), len(wanted) - 1)
        if self.sequence.runtime.fixed and tuple(wanted[:most]) != self.tokens:
            return 0
        for position in range(most):
            if self.tokens[position] != wanted[position]:
                return position
        return most

    def copy(self) -> Row:
        """Return an independent row with the same content."""
        sequence = Sequence(self.sequence.runtime, self.sequence.states.copy(self.sequence.runtime))
        sequence.length = self.sequence.length
        return Row(self.tokens, sequence)


class RowPool:
    """The rows of the last call; a new call continues those with the same first tokens."""

    def __init__(self, runtime: BundleRuntime) -> None:
        self.runtime = runtime
        self.rows: list[Row] = []

    def logits(self, requests: Items[tuple[int, ...]]) -> Tensor:
        """Return the logits after the last token of each request, `[requests, vocab]`."""
        unique = list(dict.fromkeys(requests))
        rows = self._assign(unique)
        results = {}
        for wanted, row in zip(unique, rows, strict=True):
            kept = row.shared(wanted)
            row.sequence.rewind(kept)
            row.tokens = wanted
            new = torch.tensor(wanted[row.sequence.length :])
            results[wanted] = row.sequence.append(new)[-1]
        self.rows = rows
        return torch.stack([results[wanted] for wanted in requests]).float()

    def _assign(self, requests: Items[tuple[int, ...]]) -> list[Row]:
        """Return one row for each request, with the longest prefix that any row contains.

        A row that several requests continue is copied before any of them runs. A row without a
        useful prefix is replaced, so that the pool never grows.
        """
        free = list(self.rows)
        assigned = []
        for wanted in requests:
            best = max(self.rows, key=lambda row: row.shared(wanted), default=None)
            if best is not None and best.shared(wanted) > 0:
                taken = all(best is not row for row in free)
                assigned.append(best.copy() if taken else best)
                free = [row for row in free if row is not best]
            else:
                assigned.append(Row((), Sequence(self.runtime)))
        return assigned
