"""Tables of a few numbers that stand for many: k-means on a line.

On a line the clusters are intervals of the sorted numbers. If they are few, the best ones are
found exactly among some hundred places where they may end; then Lloyd's algorithm moves them.
Running sums give the mean of an interval at once, whatever it holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 50
# So many intervals are found exactly: of 256 it would take seconds, and gain nothing.
_FEW = 16
# Half of the places are by rank and half by value: neither crowds nor outliers are forgotten.
_PLACES = 256
# Of a larger weight every so manyth number is looked at: a table is settled long before.
SAMPLE = 1 << 22


def palette(numbers: Tensor, entries: int) -> Tensor:
    """The table, in rising order, float32; deterministic."""
    stride = -(-numbers.numel() // SAMPLE)
    line = numbers[::stride].float().sort().values
    distinct = line.unique_consecutive()
    if distinct.numel() <= entries:
        return torch.cat([distinct, distinct[-1:].expand(entries - distinct.numel())])
    sums = torch.cat([torch.zeros(1, dtype=torch.float64), line.double().cumsum(0)])
    centres = _start(line, sums, entries)
    for _ in range(_STEPS):
        moved = _step(line, sums, centres)
        if torch.equal(moved, centres):
            break
        centres = moved
    return torch.cat([centres, centres[-1:].expand(entries - centres.numel())])


def _start(line: Tensor, sums: Tensor, entries: int) -> Tensor:
    """Centres that are best among those of places, or else evenly between rank and value."""
    if entries <= _FEW:
        squares = torch.cat([torch.zeros(1, dtype=torch.float64), line.double().square().cumsum(0)])
        return _means(sums, _best_ends(_places(line), sums, squares, entries)).float()
    shares = (torch.arange(entries) + 0.5) / entries
    ranks, low, high = line[(shares * line.numel()).long()], line[0], line[-1]
    return ((ranks + low + (high - low) * shares) / 2).sort().values


def _places(line: Tensor) -> Tensor:
    """Where an interval may end, as positions on the line: from its start to its end."""
    shares = torch.arange(1, _PLACES) / _PLACES
    ranks = (shares * line.numel()).long()
    values = torch.searchsorted(line, line[0] + (line[-1] - line[0]) * shares)
    ends = torch.tensor([0, line.numel()])
    return torch.cat([ends, ranks, values]).unique()


def _best_ends(places: Tensor, sums: Tensor, squares: Tensor, entries: int) -> Tensor:
    """The ends of the intervals that err the least, the first start among them.

    The best division of a line up to some place is that of a shorter line, and one interval.
    """
    first, second, count = sums[places], squares[places], places.double()
    spread = (second - second[:, None]) - (first - first[:, None]).square() / (
        count - count[:, None]
    )
    start, end = torch.arange(len(places))[:, None], torch.arange(len(places))
    spread = torch.where(start < end, spread.clamp(min=0), torch.inf)  # [start, end]
    errors, origins = spread[0], []
    backwards = spread.T.contiguous()
    for _ in range(min(entries, len(places) - 1) - 1):
        errors, origin = (errors + backwards).min(1)
        origins.append(origin)
    found = [len(places) - 1]
    for origin in reversed(origins):
        found.append(int(origin[found[-1]]))
    return places[torch.tensor([0, *reversed(found)])]


def _means(sums: Tensor, ends: Tensor) -> Tensor:
    return (sums[ends[1:]] - sums[ends[:-1]]) / (ends[1:] - ends[:-1]).clamp(min=1)


def _step(line: Tensor, sums: Tensor, centres: Tensor) -> Tensor:
    """Each centre moved to the mean of what is nearest to it; one that has nothing stays."""
    borders = torch.searchsorted(line, (centres[1:] + centres[:-1]) / 2)
    ends = torch.cat([torch.zeros(1, dtype=torch.long), borders, torch.tensor([line.numel()])])
    held = ends[1:] > ends[:-1]
    return torch.where(held, _means(sums, ends).float(), centres).sort().values


def nearest(numbers: Tensor, table: Tensor) -> Tensor:
    """For each number the index of the entry nearest to it; the table rises."""
    return torch.bucketize(numbers, (table[1:] + table[:-1]) / 2).to(torch.uint8)
