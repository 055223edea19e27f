"""The first and the middle bin of the spectrum of a real signal are real, exactly as in torch."""

from __future__ import annotations

import pytest
import torch
from module_runner import check

_CLOSE = (1e-5, 3e-4)  # sums of up to 1042 terms near 1: the absolute error grows with them
_AUTO = torch.export.Dim.AUTO


def _signal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def _signs(spectrum):
    """Return the parts that are 0, with the sign of the zero."""
    imaginary = spectrum.imag
    return imaginary == 0, torch.where(imaginary == 0, imaginary.signbit(), False)


@pytest.mark.parametrize("length", [2, 6, 7, 8, 256, 400, 512, 521, 1042])
def test_bins_of_one_axis(length):
    def bins(x):
        spectrum, whole = torch.fft.rfft(x), torch.fft.fft(x)
        middle = length // 2 if length % 2 == 0 else 0
        kept = torch.tensor([0, middle])
        return (
            spectrum.index_select(-1, kept).imag,
            spectrum.index_select(-1, kept).angle(),
            whole.index_select(-1, kept).angle(),
            torch.fft.ihfft(x).index_select(-1, kept).angle(),
            *_signs(spectrum.index_select(-1, kept)),
        )

    signals = [_signal(3, length), -_signal(3, length).abs(), _signal(3, length, seed=1).abs()]
    check(bins, *((s,) for s in signals), tolerance=(1e-5, 0.0))


@pytest.mark.parametrize("sizes", [(4, 6), (5, 8), (300, 400)])
def test_bins_of_two_axes(sizes):
    def bins(x):
        spectrum = torch.fft.rfft2(x)
        kept = spectrum[:, :: max(sizes[0] // 2, 1) if sizes[0] % 2 == 0 else sizes[0]]
        return kept[..., :: sizes[1] // 2].angle()

    check(bins, (_signal(2, *sizes),), (_signal(2, *sizes, seed=3),), optimized=(True,))


def test_bins_of_three_axes():
    def bins(x):
        return torch.fft.rfftn(x)[::2, ::3, ::4].angle(), torch.fft.fftn(x)[::2, ::3, ::4].angle()

    check(bins, (_signal(4, 6, 8),), (_signal(4, 6, 8, seed=5),))


def test_angles_of_a_short_time_transform():
    def angles(x):
        spectrum = torch.stft(x, 16, window=torch.hann_window(16), return_complex=True)
        return spectrum[:, ::8].angle()

    check(angles, (_signal(2, 64),), (_signal(2, 64, seed=2),))


@pytest.mark.parametrize("bound", [64, 2_000])
def test_bins_of_a_dynamic_length(bound):
    def bins(x):
        spectrum = torch.fft.rfft(x)
        middle = spectrum[:, x.shape[1] // 2]
        return spectrum[:, 0].angle(), middle.imag, middle.angle()

    length = torch.export.Dim("length", min=4, max=bound // 2) * 2
    calls = [(_signal(5, n),) for n in (64, 10, bound)]
    check(bins, *calls, dynamic_shapes=({1: length},), tolerance=_CLOSE, optimized=(True,))


@pytest.mark.parametrize("length", [6, 7, 256, 400, 1042])
def test_inverse_ignores_the_imaginary_parts_of_real_bins(length):
    def inverses(x):
        return torch.fft.irfft(x, length), torch.fft.hfft(x, length, norm="forward")

    spectrum = torch.complex(_signal(length // 2 + 1), _signal(length // 2 + 1, seed=1))
    spectrum[0] = complex(1.0, float("nan"))
    spectrum[-1] += 1e9j if length % 2 == 0 else 0
    check(inverses, (spectrum,), tolerance=_CLOSE)


@pytest.mark.parametrize("bound", [64, 2_000])
def test_inverse_of_a_dynamic_length_ignores_them(bound):
    def inverse(x):
        return torch.fft.irfft(x, 2 * (x.shape[0] - 1))

    def spectrum(half):
        found = torch.complex(_signal(half + 1), _signal(half + 1, seed=1))
        found[0] += 1e9j
        found[-1] += 1e9j
        return found

    length = torch.export.Dim("length", min=4, max=bound // 2 + 1)
    calls = [(spectrum(n // 2),) for n in (64, 10, bound)]
    check(inverse, *calls, dynamic_shapes=({0: length},), tolerance=_CLOSE, optimized=(True,))
