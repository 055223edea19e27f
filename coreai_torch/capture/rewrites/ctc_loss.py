"""The CTC loss step by step: torch's own has a buffer as long as the longest target it finds."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

Lengths: TypeAlias = Tensor | Sequence[int]


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """`torch.nn.functional.ctc_loss`: minus the logarithm of what all alignments sum up to."""
    batched = log_probs.dim() == 3
    steps = log_probs if batched else log_probs.unsqueeze(1)
    inputs, lengths = (torch.as_tensor(x).reshape(-1) for x in (input_lengths, target_lengths))
    labels = targets if targets.dim() == 2 else _in_rows(targets, lengths)
    loss = -_summed(steps, _with_blanks(labels, blank), inputs, lengths, blank)
    if zero_infinity:
        loss = torch.where(loss.isinf(), 0.0, loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _in_rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """Targets that lie one behind the other, each at the head of a row of its own."""
    first = lengths.cumsum(0) - lengths
    places = first.unsqueeze(1) + torch.arange(targets.shape[0])
    return targets[places.clamp(max=targets.shape[0] - 1)]


def _with_blanks(labels: Tensor, blank: int) -> Tensor:
    """A blank before and after each label."""
    between = torch.full_like(labels, blank)
    return functional.pad(torch.stack([between, labels], 2).flatten(1), (0, 1), value=blank)


def _summed(steps: Tensor, states: Tensor, inputs: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """The logarithm of the probability of all ways through the states of each sequence."""
    odds = steps.gather(2, states.unsqueeze(0).expand(steps.shape[0], *states.shape))
    place = torch.arange(states.shape[1])
    # From a label to the next, past the blank between them, unless they are the same.
    skips = (states != blank) & (states != functional.pad(states, (2, 0), value=blank)[:, :-2])
    never = -float("inf")
    ways = torch.where(place < 2, odds[0], never)
    ways = torch.where(place <= 2 * lengths.unsqueeze(1), ways, never)
    for step in range(1, steps.shape[0]):
        one = functional.pad(ways, (1, 0), value=never)[:, :-1]
        two = torch.where(skips, functional.pad(ways, (2, 0), value=never)[:, :-2], never)
        onward = torch.stack([ways, one, two]).logsumexp(0) + odds[step]
        ways = torch.where((step < inputs).unsqueeze(1), onward, ways)
    last = 2 * lengths.unsqueeze(1)
    ends = (place == last) | (place == last - 1)
    return torch.where(ends, ways, never).logsumexp(1)
