"""The error of half precision against float32 is the same for the program and for eager torch.

Measured, relative to the largest logit. Mixtral in float16: eager torch 8.1e-4, the program with
float32 sums 7.9e-4, the runtime on Linux, which sums in float16, 1.9e-3; the routers choose the
same experts as in float32. Gemma 3 in bfloat16: 9.9e-3, 1.0e-2, 1.0e-2; one rounding is 7.8e-3.
"""

from __future__ import annotations

import copy

import pytest
import torch
import zoo
from zoo import judge

from coreai_torch import TorchConverter, to_torch

# The program rounds at other points: the largest error of a few hundred logits may be larger.
_ALLOWED_RATIO = 1.25


def _distance(value, want):
    return judge._distance("logits", value.double(), want.double())


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "dtype"), [("mixtral", torch.float16), ("gemma3", torch.bfloat16)], ids=str
)
def test_error_against_float32_is_that_of_eager_torch(name, dtype):
    row = zoo.ROWS[name]
    torch.manual_seed(0)
    model = row.build().eval()
    judge._add_noise(model, row.gain)
    model = model.to(dtype)
    inputs = judge._make_inputs(row.inputs, dtype)
    with torch.no_grad():
        (eager,) = judge._results(model, inputs, row.flags)
        (wide,) = judge._results(copy.deepcopy(model).float(), inputs, row.flags)
    exported = judge._exported(row, model, inputs)
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    (got,) = to_torch(program)(inputs).values()
    assert _distance(got, wide) <= _ALLOWED_RATIO * _distance(eager, wide)
