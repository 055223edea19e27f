"""Decide whether a mutant matters, without `verify`: compare in float64 with the dtype's noise.

A mutant matters if some element of some output moves further than dtype noise explains. The noise
of an element is the largest of: the error of eager torch in the program's dtype and that of the
unmutated program, both against torch in float64; the root mean square of these errors over the
elements of the output that have about the same magnitude, because one error may be small by chance;
and one rounding of the element. A change counts beyond `FACTOR` times that. Integers and booleans
have no noise.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

FACTOR = 16.0
ENOUGH = 8  # elements whose errors are averaged


def is_significant(
    mutated: Sequence[torch.Tensor],
    original: Sequence[torch.Tensor],
    eager: Sequence[torch.Tensor],
    wide: Sequence[torch.Tensor] | None,
) -> bool:
    """Return whether the mutated outputs differ from the original ones beyond noise."""
    references = wide if wide is not None else eager
    rows = zip(mutated, original, eager, references, strict=True)
    return any(_differs(*row) for row in rows)


def _differs(
    mutated: torch.Tensor, original: torch.Tensor, eager: torch.Tensor, wide: torch.Tensor
) -> bool:
    if mutated.shape != original.shape or mutated.dtype != original.dtype:
        return True
    if not (original.is_floating_point() or original.is_complex()):
        return bool((mutated != original).any())
    epsilon = torch.finfo(original.dtype).eps
    a, b, e, w = (_widen(t) for t in (mutated, original, eager, wide))
    if a.isfinite().ne(b.isfinite()).any() or a.isnan().ne(b.isnan()).any():
        return True
    if wide.shape != original.shape:
        e = w = b
    finite = a.isfinite() & e.isfinite() & w.isfinite()
    zero = torch.zeros((), dtype=torch.float64)
    change, ours, eagers = (
        torch.where(finite, (x - y).abs(), zero) for x, y in ((a, b), (b, w), (e, w))
    )
    errors = torch.maximum(ours, eagers)
    size = torch.where(finite, w.abs(), zero)
    noise = torch.maximum(torch.maximum(errors, _usual(errors, size)), epsilon * size)
    tiny = torch.finfo(original.dtype).tiny
    return bool((change > FACTOR * noise + tiny).any())


def _usual(errors: torch.Tensor, size: torch.Tensor) -> torch.Tensor:
    """Return the root mean square of the errors of the elements within a factor of 8 in size.

    A group of fewer than `ENOUGH` elements takes in the next larger ones: the only element of
    1e-5 among elements of 1 may be exact to 5e-9 by chance, where the usual error is 1e-7.
    """
    if not errors.numel():
        return errors
    groups = torch.floor(torch.log2(size.clamp(min=1e-300)) / 3).flatten()
    _, places = torch.unique(groups, return_inverse=True)
    numbers = torch.bincount(places)
    squares = torch.zeros(len(numbers), dtype=torch.float64)
    squares = squares.index_add(0, places, errors.flatten() ** 2)
    means = torch.zeros(len(numbers), dtype=torch.float64)
    for group in range(len(numbers)):
        last = group + 1
        while last < len(numbers) and int(numbers[group:last].sum()) < ENOUGH:
            last += 1
        means[group] = squares[group:last].sum() / numbers[group:last].sum()
    return means.sqrt()[places].reshape(errors.shape)


def _widen(t: torch.Tensor) -> torch.Tensor:
    return t.to(torch.complex128 if t.is_complex() else torch.float64)
