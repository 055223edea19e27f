"""Reductions, scans, sorts and counts, exported at one size and run at others."""

from __future__ import annotations

import pytest
import runtime
import torch

import coreai_torch
from coreai_torch.ir.types import narrow

AUTO = torch.export.Dim.AUTO

FUNCTIONS = {
    "sums": lambda x: (x.sum(), x.mean((0, 1)), x.prod(1), x.logsumexp(0)),
    "spreads": lambda x: (x.var(0), x.std(), torch.linalg.vector_norm(x, 3, 1)),
    "extremes": lambda x: (*x.max(1), *x.min(0), x.argmax(), x.amin(1, keepdim=True)),
    "runs": lambda x: (x.cumsum(0), *x.cummax(1), x.logcumsumexp(1)),
    "orders": lambda x: (*x.sort(0, descending=True), *x.topk(2), *x.kthvalue(1)),
    "places by size": lambda x: (*x.topk(x.shape[1] // 2), *x.kthvalue(x.shape[0] // 2, 0)),
    "middles": lambda x: (*x.median(1), x.nanmedian(), *x.round().mode(0), x.quantile(0.3, 1)),
    "searches": lambda x: (torch.bucketize(x, x[0].sort().values), torch.isin(x, x[1:])),
    "counts": lambda x: (x.histc(5, -1, 1), x.abs().long()[0].bincount()),
    "distinct": lambda x: torch.unique(x.round(), return_inverse=True, return_counts=True),
    "distinct rows": lambda x: torch.unique(x.round(), dim=0, return_counts=True),
}


class Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize("function", FUNCTIONS.values(), ids=list(FUNCTIONS))
def test_program_runs_at_other_sizes(function):
    x = torch.randn(4, 6)
    exported = torch.export.export(Call(function), (x,), dynamic_shapes=({0: AUTO, 1: AUTO},))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    for number, shape in enumerate([(4, 6), (3, 5), (9, 2), (2, 40)]):
        x = torch.randn(shape, generator=torch.Generator().manual_seed(number))
        got = runtime.run(program, {"x": x}).values()
        for mine, torchs in zip(got, function(x), strict=True):
            torch.testing.assert_close(
                mine,
                torchs.to(narrow(torchs.dtype)),
                rtol=1e-5,
                atol=1e-5,
            )
