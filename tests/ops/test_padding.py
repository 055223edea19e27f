"""Padding is the dialect's op and has the numbers of torch at real sizes."""

from __future__ import annotations

import pytest
import torch
from module_runner import convert, run
from torch.nn import functional

from coreai_torch.asset.mlir_module import mlir_module_of


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
def test_padding_of_a_large_image_is_one_op(mode):
    x = torch.randn(1, 3, 40, 50)

    def pads(x):
        return functional.pad(x, (3, 1, 0, 2), mode=mode)

    program = convert(pads, (x,))
    (found,) = run(program, (x,))
    assert torch.equal(found, pads(x))
    text = str(mlir_module_of(program))
    assert text.count("coreai.pad") == 1
    assert not any(op in text for op in ("gather", "slice", "transpose"))


@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate", "circular"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.int32, torch.int8, torch.uint8])
def test_padding_of_narrow_numbers(mode, dtype):
    x = torch.arange(2 * 3 * 4).reshape(1, 2, 3, 4).to(dtype)
    want = functional.pad(x.float(), (3, 1, 2, 2), mode=mode).to(dtype)

    def pads(x):
        return functional.pad(x, (3, 1, 2, 2), mode=mode)

    (found,) = run(convert(pads, (x,)), (x,))
    assert torch.equal(found, want)


def test_padding_before_a_convolution_is_the_dialects_op():
    weight = torch.randn(2, 3, 3, 3)

    def padded(x):
        return functional.conv2d(functional.pad(x, (1, 1, 1, 1)), weight, padding=1)

    program = convert(padded, (torch.randn(1, 3, 6, 6),))
    assert str(mlir_module_of(program)).count("coreai.pad") == 2
