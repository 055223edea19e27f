"""No op that the native compiler would fold has only constants as operands.

The compiler folds some large constants for minutes, and the runtime folds again at each load. The
cases of all ops are checked where they are converted, in `tests/ops`.
"""

from __future__ import annotations

import pytest
import torch
from constant_operations import computed_late

import coreai_torch
from benchmarks.ops.cases import CASES
from benchmarks.ops.real_sizes import REAL_SIZES
from coreai_torch.capture.exporting import decompose, export

# One call of each kind that makes large constants.
QUICK = (
    "relative positions 512",
    "fold 192 of 28x28",
    "roll 224x224x96",
    "tril 1,024x1,024",
    "rfft 4x16,384",
    "adaptive_avg_pool2d 57x57 to 7x7",
    "cummax 4x8,192",
)


class _Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def _converted(function, args):
    module = function if isinstance(function, torch.nn.Module) else _Call(function)
    exported = decompose(export(module.eval(), args, {}, None), coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize("name", QUICK)
def test_no_op_on_constants_alone(name):
    assert not computed_late(_converted(*CASES[name]()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize("name", [n for n in CASES | REAL_SIZES if n not in QUICK])
def test_no_op_on_constants_alone_at_real_sizes(name):
    if name.startswith(("nms", "roi_", "deform_")):
        pytest.skip("an op of torchvision, which is not defined here")
    assert not computed_late(_converted(*(CASES | REAL_SIZES)[name]()))
