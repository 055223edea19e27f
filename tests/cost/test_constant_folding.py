"""No op that the native compiler would fold has only constants as operands.

The compiler folds some large constants for minutes, and the run time folds again at each load.
"""

from __future__ import annotations

import math
import re
import sys
from pathlib import Path

import pytest
import torch

import coreai_torch
from benchmarks.ops.cases import CASES
from benchmarks.ops.real_sizes import REAL_SIZES
from coreai_torch.capture.exporting import decompose, export

from .constant_operations import constant_operations

sys.path.append(str(Path(__file__).parents[1] / "ops"))

SMALL = 1_024  # elements of a result that may be computed at load: initial states, small tables
# The cast of a stored weight runs at each call, 3 ns for each element; 32 MB of float16 load in
# 45 ms, the same weights in float32 in 98 ms (coreai-core 1.0.0b3, x86).
_HALF = "a weight that is stored in half the bytes: the compiler does not fold it"
ALLOWED = {
    "coreai.range": "the compiler does not fold it: a causal mask of 8,192 x 8,192 loads in 25 ms",
    "coreai.broadcast_to": "a fill: the compiler does not fold it, and it takes no space",
    "coreai.blockwise_shift_scale": "a compressed weight",
    "coreai.build_sparse_with_bitmask": "a compressed weight",
    "coreai.constexpr_blockwise_shift_scale": "a compressed weight",
    "coreai.constexpr_lut_to_dense": "a compressed weight",
    "coreai.lut_to_dense": "a compressed weight",
    "coreai.sparse_to_dense": "a compressed weight",
    "coreai.sparsely_packed_to_dense": "a compressed weight",
    "coreai.dequantize": "a quantized weight",
    "coreai.transpose": "a view of a weight, which is not copied",
    "coreai.reshape": "a view of a weight, which is not copied",
    "coreai.shrink_dims": "a view of an initial state",
    "coreai.cast from f16": _HALF,
    "coreai.cast from bf16": _HALF,
    "coreai.invoke": "a call of a composite, whose body names the constants",
}
BATCHES = 32
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


def _elements(type_: str) -> int:
    sizes = re.findall(r"(\d+)x", type_)
    return math.prod(map(int, sizes))


def _folded_late(program):
    return [
        (name, type_)
        for name, type_ in constant_operations(program)
        if name not in ALLOWED and _elements(type_) > SMALL
    ]


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
def test_no_large_op_on_constants_alone(name):
    assert not _folded_late(_converted(*CASES[name]()))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize("name", [n for n in CASES | REAL_SIZES if n not in QUICK])
def test_no_large_op_on_constants_alone_at_real_sizes(name):
    if name.startswith(("nms", "roi_", "deform_")):
        pytest.skip("an op of torchvision, which is not defined here")
    assert not _folded_late(_converted(*(CASES | REAL_SIZES)[name]()))


@pytest.mark.slow
@pytest.mark.parametrize("batch", range(BATCHES))
@pytest.mark.filterwarnings("ignore")
def test_no_op_case_computes_with_constants_alone(batch):
    import case_runner

    late = {}
    for param in case_runner.ALL[batch::BATCHES]:
        entry, case = param.values
        if not isinstance(entry.target, torch._ops.OpOverload):
            continue
        try:
            _, program = case_runner.convert(
                case_runner.CaseModel(entry.target, case), dynamic=False
            )
        except Exception:  # a case that is rejected, which another test checks
            continue
        found = [(n, t) for n, t in constant_operations(program) if n not in ALLOWED]
        if any(_elements(type_) > 8 for _, type_ in found):  # cases are small
            late[param.id] = found
    assert not late
