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

_NEVER = -float("inf")
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
    if targets.dim() == 2:
        loss = -_of_rows(steps, _add_blanks(targets, blank), inputs, lengths, blank)
    else:
        loss = -_of_concatenated(steps, targets, inputs, lengths, blank)
    if zero_infinity:
        loss = torch.where(loss.isinf(), 0.0, loss)
    if reduction == "mean":
        return (loss / lengths.clamp(min=1)).mean()
    if reduction == "sum":
        return loss.sum()
    return loss if batched else loss.squeeze(0)


def _add_blanks(labels: Tensor, blank: int) -> Tensor:
    """Insert a blank before and after each label."""
    blanks = torch.full_like(labels, blank)
    return functional.pad(torch.stack([blanks, labels], 2).flatten(1), (0, 1), value=blank)


def _of_rows(steps: Tensor, states: Tensor, inputs: Tensor, lengths: Tensor, blank: int) -> Tensor:
    """Return the log probability of all paths through the states of each sequence."""
    emissions = steps.gather(2, states.unsqueeze(0).expand(steps.shape[0], *states.shape))
    position = torch.arange(states.shape[1]).expand(states.shape)
    paths = _follow(emissions, states, position, inputs.unsqueeze(1), blank)
    last = 2 * lengths.unsqueeze(1)
    ends = (position == last) | (position == last - 1)
    return torch.where(ends, paths, _NEVER).logsumexp(1)


def _of_concatenated(
    steps: Tensor, targets: Tensor, inputs: Tensor, lengths: Tensor, blank: int
) -> Tensor:
    """Return the same for targets one after another, whose states also are.

    A row for each of 16 targets would have as many states as all targets together.
    """
    following = (2 * lengths + 1).cumsum(0)
    first_label, first = lengths.cumsum(0) - lengths, following - 2 * lengths - 1
    index = torch.arange(2 * targets.shape[0] + lengths.shape[0])
    owner = (index.unsqueeze(1) >= following).sum(1).clamp(max=lengths.shape[0] - 1)
    position = index - first[owner]
    labels = functional.pad(targets, (0, 1), value=blank)
    number = (first_label[owner] + position // 2).clamp(max=targets.shape[0])
    states = torch.where(position % 2 == 1, labels[number], blank)
    emissions = steps.flatten(1).index_select(1, owner * steps.shape[2] + states)
    states, position, steps_left = (x.unsqueeze(0) for x in (states, position, inputs[owner]))
    paths = _follow(emissions.unsqueeze(1), states, position, steps_left, blank).squeeze(0)
    before = torch.where(lengths > 0, paths[(following - 2).clamp(min=0)], _NEVER)
    return torch.stack([paths[following - 1], before]).logsumexp(0)


def _follow(
    emissions: Tensor, states: Tensor, position: Tensor, inputs: Tensor, blank: int
) -> Tensor:
    """Return the log probabilities of all paths that end in each state after all steps.

    This is the forward algorithm: unrolled if there are few steps, else as a loop. `position` is
    that of a state in its target.
    """
    count = emissions.shape[0]
    # A path may skip the blank between two different labels.
    before = functional.pad(states, (2, 0), value=blank)[:, :-2]
    skips = (states != blank) & (states != before) & (position >= 2)
    paths = torch.where(position < 2, emissions[0], _NEVER)
    given = (skips, position > 0, inputs)
    if type(count) is int and count <= _MOST_UNROLLED:
        for step in range(1, count):
            paths = _step(paths, emissions[step], step < inputs, *given[:2])
        return paths
    start = torch.ones((), dtype=torch.int64)
    return while_loop_op(_has_step, _take_step, (start, paths.clone()), (emissions, *given))[1]


def _has_step(step: Tensor, paths: Tensor, emissions: Tensor, *rest: Tensor) -> Tensor:
    return step < emissions.shape[0]


def _take_step(
    step: Tensor, paths: Tensor, emissions: Tensor, skips: Tensor, follows: Tensor, inputs: Tensor
) -> tuple[Tensor, Tensor]:
    emission = emissions.index_select(0, step.reshape(1)).squeeze(0)
    return step + 1, _step(paths, emission, step < inputs, skips, follows)


def _step(
    paths: Tensor, emission: Tensor, goes_on: Tensor, skips: Tensor, follows: Tensor
) -> Tensor:
    next_state = torch.where(follows, functional.pad(paths, (1, 0))[:, :-1], _NEVER)
    skipped = torch.where(skips, functional.pad(paths, (2, 0))[:, :-2], _NEVER)
    onward = torch.stack([paths, next_state, skipped]).logsumexp(0) + emission
    return torch.where(goes_on, onward, paths)
