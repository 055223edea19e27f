"""Find palettes with one-dimensional k-means.

In one dimension the clusters are intervals of the sorted numbers. For few clusters, dynamic
programming finds the best intervals among a few hundred candidate boundaries; then Lloyd's
algorithm refines them. Prefix sums give the mean of any interval in constant time.
"""

from __future__ import annotations

import torch
from torch import Tensor

_STEPS = 50
# Up to this many clusters start from the exact solution; for 256 it takes seconds without a gain.
_EXACT = 16
# Half of the candidate boundaries are by rank, for dense regions, half by value, for outliers.
_BOUNDARIES = 256
# A larger weight is subsampled with a stride to at most this size; the table does not need more.
SAMPLE = 1 << 22


def palette(numbers: Tensor, entries: int) -> Tensor:
    """Return the table in ascending order as float32; the result is deterministic."""
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
    """Return the best centres over the candidates, or the mean of rank and value quantiles."""
    if entries <= _EXACT:
        squares = torch.cat([torch.zeros(1, dtype=torch.float64), line.double().square().cumsum(0)])
        return _means(sums, _best_ends(_boundaries(line), sums, squares, entries)).float()
    shares = (torch.arange(entries) + 0.5) / entries
    ranks, low, high = line[(shares * line.numel()).long()], line[0], line[-1]
    return ((ranks + low + (high - low) * shares) / 2).sort().values


def _boundaries(line: Tensor) -> Tensor:
    """Return the candidate interval boundaries as indices, including both ends of the line."""
    shares = torch.arange(1, _BOUNDARIES) / _BOUNDARIES
    ranks = (shares * line.numel()).long()
    values = torch.searchsorted(line, line[0] + (line[-1] - line[0]) * shares)
    ends = torch.tensor([0, line.numel()])
    return torch.cat([ends, ranks, values]).unique()


def _best_ends(candidates: Tensor, sums: Tensor, squares: Tensor, entries: int) -> Tensor:
    """Return the boundaries with the least squared error, including the start of the line.

    Dynamic programming: the best division of a prefix is the best division of a shorter prefix
    plus one interval.
    """
    first, second, count = sums[candidates], squares[candidates], candidates.double()
    spread = (second - second[:, None]) - (first - first[:, None]).square() / (
        count - count[:, None]
    )
    start, end = torch.arange(len(candidates))[:, None], torch.arange(len(candidates))
    spread = torch.where(start < end, spread.clamp(min=0), torch.inf)  # [start, end]
    errors, origins = spread[0], []
    backwards = spread.T.contiguous()
    for _ in range(min(entries, len(candidates) - 1) - 1):
        errors, origin = (errors + backwards).min(1)
        origins.append(origin)
    found = [len(candidates) - 1]
    for origin in reversed(origins):
        found.append(int(origin[found[-1]]))
    return candidates[torch.tensor([0, *reversed(found)])]


def _means(sums: Tensor, ends: Tensor) -> Tensor:
    return (sums[ends[1:]] - sums[ends[:-1]]) / (ends[1:] - ends[:-1]).clamp(min=1)


def _step(line: Tensor, sums: Tensor, centres: Tensor) -> Tensor:
    """Move each centre to the mean of its nearest numbers; an empty cluster does not move."""
    borders = torch.searchsorted(line, (centres[1:] + centres[:-1]) / 2)
    ends = torch.cat([torch.zeros(1, dtype=torch.long), borders, torch.tensor([line.numel()])])
    nonempty = ends[1:] > ends[:-1]
    return torch.where(nonempty, _means(sums, ends).float(), centres).sort().values


def nearest(numbers: Tensor, table: Tensor) -> Tensor:
    """Return for each number the index of the nearest entry; the table is in ascending order."""
    return torch.bucketize(numbers, (table[1:] + table[:-1]) / 2).to(torch.uint8)
