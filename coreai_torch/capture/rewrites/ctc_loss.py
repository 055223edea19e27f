"""The CTC loss, computed step by step.

torch's own op has a buffer whose size is the longest target, so it cannot be exported.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.nn import functional

from ...torch_compat import while_loop_op

Lengths: TypeAlias = Tensor | Sequence[int]

_MOST_UNROLLED = 16  # steps; the size of the program and the time to convert it grow with them


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Lengths,
    target_lengths: Lengths,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Any:
    """Compute `torch.nn.functional.ctc_loss`: minus the log probability of all alignments."""
    batched = log_probs.dim() == 3
    steps = log_probs if batched else log_probs.unsqueeze(1)
    inputs, lengths = (torch.as_tensor(x).reshape(-1) for x in (input_lengths, target_lengths))
    labels = targets if targets.dim() == 2 else _pad_rows(targets, lengths)
    loss = -_log_probability(steps, _add_blanks(labels, blank), inputs, lengths, blank)
    if zero_infinity:
        loss = torch.where(loss.isinf(), 0.0, loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _pad_rows(targets: Tensor, lengths: Tensor) -> Tensor:
    """Copy concatenated targets into one row each; values after a target are arbitrary."""
    first = lengths.cumsum(0) - lengths
    indices = first.unsqueeze(1) + torch.arange(targets.shape[0])
    return targets[indices.clamp(max=targets.shape[0] - 1)]


def _add_blanks(labels: Tensor, blank: int) -> Tensor:
    """Insert a blank before and after each label."""
    blanks = torch.full_like(labels, blank)
    return functional.pad(torch.stack([blanks, labels], 2).flatten(1), (0, 1), value=blank)


def _log_probability(
    steps: Tensor, states: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    """Return the log probability of all paths through the states of each sequence.

    This is the forward algorithm: `paths[b, s]` is that of all paths that end in state `s`.
    """
    emissions = steps.gather(2, states.unsqueeze(0).expand(steps.shape[0], *states.shape))
    position = torch.arange(states.shape[1])
    # A path may skip the blank between two different labels.
    skips = (states != blank) & (states != functional.pad(states, (2, 0), value=blank)[:, :-2])
    never = -float("inf")
    paths = torch.where(position < 2, emissions[0], never)
    paths = torch.where(position <= 2 * lengths.unsqueeze(1), paths, never)
    paths = _follow(paths, emissions, skips, inputs)
    last = 2 * lengths.unsqueeze(1)
    ends = (position == last) | (position == last - 1)
    return torch.where(ends, paths, never).logsumexp(1)


def _follow(paths: Tensor, emissions: Tensor, skips: Tensor, inputs: Tensor) -> Tensor:
    """Return the paths after all steps: unrolled if there are few, else as a loop."""
    count = emissions.shape[0]
    if type(count) is int and count <= _MOST_UNROLLED:
        for step in range(1, count):
            paths = _step(paths, emissions[step], skips, step < inputs)
        return paths
    start = torch.ones((), dtype=torch.int64)
    given = (emissions, skips, inputs)
    return while_loop_op(_has_step, _take_step, (start, paths.clone()), given)[1]


def _has_step(step: Tensor, paths: Tensor, emissions: Tensor, *rest: Tensor) -> Tensor:
    return step < emissions.shape[0]


def _take_step(
    step: Tensor, paths: Tensor, emissions: Tensor, skips: Tensor, inputs: Tensor
) -> tuple[Tensor, Tensor]:
    emission = emissions.index_select(0, step.reshape(1)).squeeze(0)
    return step + 1, _step(paths, emission, skips, step < inputs)


def _step(paths: Tensor, emission: Tensor, skips: Tensor, goes_on: Tensor) -> Tensor:
    never = -float("inf")
    next_state = functional.pad(paths, (1, 0), value=never)[:, :-1]
    skipped = torch.where(skips, functional.pad(paths, (2, 0), value=never)[:, :-2], never)
    onward = torch.stack([paths, next_state, skipped]).logsumexp(0) + emission
    return torch.where(goes_on.unsqueeze(1), onward, paths)
