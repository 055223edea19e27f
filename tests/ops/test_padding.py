"""Padding is a copy, except before windows, and has the numbers of torch at real sizes."""

from __future__ import annotations

import pytest
import torch
from module_runner import convert, run
from torch.nn import functional

from coreai_torch.asset.mlir_module import mlir_module_of


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_of_a_large_image(mode):
    x = torch.randn(1, 3, 40, 50)

    def pads(x):
        return functional.pad(x, (3, 1, 0, 2), mode=mode)

    program = convert(pads, (x,))
    (found,) = run(program, (x,))
    assert torch.equal(found, pads(x))
    assert "coreai.pad" not in str(mlir_module_of(program))


def test_padding_before_a_convolution_is_the_dialects_op():
    weight = torch.randn(2, 3, 3, 3)

    def padded(x):
        return functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight, padding=1)

    program = convert(padded, (torch.randn(1, 3, 6, 6),))
    assert str(mlir_module_of(program)).count("coreai.pad") == 2
