"""Times of calls, operations and modules on the runtime."""

from __future__ import annotations

import asyncio
import io

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.debugging.benchmarker import benchmark_coreai_program


class Heavy(nn.Module):
    def __init__(self):
        super().__init__()
        self.wide = nn.Sequential(nn.Linear(1024, 1024), nn.LayerNorm(1024))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        return self.wide(x)[:, :1].exp() * self.calls


@pytest.fixture(scope="module", params=["as-converted", "optimized"])
def program(request):
    exported = torch.export.export(Heavy().eval(), (torch.ones(64, 1024),))
    exported = exported.run_decompositions(get_decomp_table())
    made = TorchConverter().add_exported_program(exported).to_coreai()
    if request.param == "optimized":
        made.optimize()
    return made


def benchmark(program, runs):
    inputs = {"x": torch.ones(64, 1024)}
    return asyncio.run(
        benchmark_coreai_program(coreai_program=program, inputs=inputs, num_runs=runs)
    )


def test_the_slowest_operation_is_the_matrix_product(program):
    result = benchmark(program, 4)
    assert len(result.seconds) == 4
    # The product, or the transposition of its weight: this depends on the machine.
    assert result.operations[0].module == "wide.0"
    modules = {row.module: row for row in result.get_module_timings()}
    assert {"", "wide", "wide.0", "wide.1"} <= modules.keys()
    assert modules[""].share == pytest.approx(1)
    assert modules["wide"].milliseconds == pytest.approx(
        modules["wide.0"].milliseconds + modules["wide.1"].milliseconds
    )
    # The profiler counts nanoseconds; another unit would be off by a factor of a thousand.
    assert 0.05 < modules[""].milliseconds / result.median_ms < 50


def test_write_summary_lists_calls_modules_and_operations(program):
    stream = io.StringIO()
    benchmark(program, 2).write_summary(stream)
    text = stream.getvalue()
    assert "ms per call (median of 2;" in text
    assert "(whole model)" in text
    assert "batch_matmul, wide.0" in text


def test_zero_runs_are_rejected(program):
    with pytest.raises(ValueError, match="num_runs is 0"):
        benchmark(program, 0)
