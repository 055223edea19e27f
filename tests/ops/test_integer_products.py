"""Running products of integers that leave 32 bits, at which `coreai.scan` ends the process."""

from __future__ import annotations

import pytest
import torch
from module_runner import convert, run

DYNAMIC = torch.export.Dim.DYNAMIC


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
def test_a_product_that_leaves_32_bits_is_zero_from_there_on():
    calls = {
        (70_000, 70_000, 3, 2): [70_000, 0, 0, 0],
        (3,) * 21: [3**k for k in range(1, 20)] + [0, 0],
        (46_340, 46_340, -1, 1): [46_340, 46_340**2, -(46_340**2), -(46_340**2)],
        (1, -1, 2**31 - 2_400): [1, -1, 2_400 - 2**31],
        (5, 0, 2**31 - 1, 2**31 - 1): [5, 0, 0, 0],
    }
    program = convert(lambda x: x.cumprod(0), (torch.tensor([1, 2, 3]),), ({0: DYNAMIC},))
    for optimized in (False, True):
        if optimized:
            program.optimize()
        for factors, products in calls.items():
            assert run(program, (torch.tensor(factors),))[0].tolist() == products
