"""Fourier transforms of long static lengths, with a dynamic batch."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

_CLOSE = (1e-5, 3e-4)  # sums of up to 1042 terms near 1: the absolute error grows with them


@pytest.mark.parametrize("length", [1_000, 1_042, 521])
@pytest.mark.parametrize("dim", [0, 1])
def test_batch_of_long_transforms_is_dynamic(length, dim):
    def there_and_back(x):
        spectrum = torch.fft.rfft(x, dim=dim)
        return torch.view_as_real(spectrum), torch.fft.irfft(spectrum * 2, length, dim)

    batches = [torch.randn(*((length, n) if dim == 0 else (n, length))) for n in (3, 5)]
    dynamic = {1 - dim: torch.export.Dim.AUTO}
    check(
        there_and_back,
        *((b,) for b in batches),
        dynamic_shapes=(dynamic,),
        tolerance=_CLOSE,
        optimized=(True,),
    )
