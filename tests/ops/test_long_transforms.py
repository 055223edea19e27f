"""Fourier transforms of long lengths: static with a dynamic batch, and dynamic lengths."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

import coreai_torch

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


_LENGTH = torch.export.Dim("length", min=4, max=2_000)


def _there_and_back(x):
    spectrum = torch.fft.rfft(x, norm="ortho")
    return torch.view_as_real(spectrum), torch.fft.irfft(spectrum, x.shape[0], norm="ortho")


def test_dynamic_length_with_an_upper_bound():
    check(
        _there_and_back,
        *((torch.randn(n),) for n in (1_999, 1_000, 64)),
        dynamic_shapes=({0: _LENGTH},),
        tolerance=_CLOSE,
        optimized=(True,),
    )


@pytest.mark.parametrize("bound", [1_024, 100_000])
def test_dynamic_length_with_and_without_small_factors(bound):
    """1,000 has factors of 10; the last factor of 1,018 is 509, and 1,021 is a prime."""
    length = torch.export.Dim("length", min=1, max=bound)
    check(
        _there_and_back,
        *((torch.randn(n),) for n in (1_000, 1_018, 1_021, 257, 2)),
        dynamic_shapes=({0: length},),
        tolerance=_CLOSE,
        optimized=(True,),
    )


def test_convolution_of_a_dynamic_length():
    def convolve(x, y):
        size = 2 * x.shape[1]
        product = torch.fft.rfft(x, size) * torch.fft.rfft(y, size)
        return torch.fft.irfft(product, size)[:, : x.shape[1]]

    check(
        convolve,
        *((torch.randn(3, n), torch.randn(3, n)) for n in (512, 509, 1_000)),
        dynamic_shapes=({1: _LENGTH}, {1: _LENGTH}),
        tolerance=_CLOSE,
        optimized=(True,),
    )


@pytest.mark.parametrize("dim", [0, 1])
def test_rows_of_a_dynamic_length_with_an_upper_bound(dim):
    check(
        lambda x: torch.view_as_real(torch.fft.fft(x, dim=dim)),
        *((torch.randn(*((n, 3) if dim == 0 else (3, n))),) for n in (1_999, 64)),
        dynamic_shapes=({dim: _LENGTH},),
        tolerance=_CLOSE,
        optimized=(True,),
    )


def test_dynamic_length_of_complex_numbers_with_an_upper_bound():
    signals = [torch.randn(2, n, dtype=torch.complex64) for n in (1_999, 64)]
    check(
        lambda x: torch.view_as_real(torch.fft.ifft(torch.fft.fft(x, norm="ortho"), norm="ortho")),
        *((s,) for s in signals),
        dynamic_shapes=({1: _LENGTH},),
        tolerance=_CLOSE,
        optimized=(True,),
    )


def test_dynamic_length_without_an_upper_bound():
    """The product of two positions exceeds 32 bits above a length of 46,340."""
    check(
        _there_and_back,
        *((torch.randn(n),) for n in (50_021, 1_024, 2, 1)),
        dynamic_shapes=({0: torch.export.Dim.DYNAMIC},),
        tolerance=_CLOSE,
        optimized=(True,),
    )


def test_dynamic_length_takes_linear_memory():
    length = torch.export.Dim("length", min=4, max=100_000)
    check(
        lambda x: torch.fft.rfft(x).abs(),
        (torch.randn(50_021),),
        dynamic_shapes=({0: length},),
        tolerance=(1e-5, 1e-2),  # sums of 50,021 terms of size 1: the magnitudes are about 224
        optimized=(True,),
    )


def test_dynamic_length_with_a_very_large_bound_is_rejected():
    class Transform(torch.nn.Module):
        def forward(self, x):
            return torch.fft.rfft(x).abs()

    length = torch.export.Dim("length", min=4, max=40_000_000)
    with pytest.raises(
        coreai_torch.errors.ConversionError, match="dynamic length of up to 40,000,000"
    ):
        coreai_torch.convert(Transform(), (torch.randn(64),), dynamic_shapes=({0: length},))
