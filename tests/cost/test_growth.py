"""Programs, constants, time and memory grow no faster than `complexity.py` declares."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
import runtime
import torch
from torch.utils import _pytree as pytree

import coreai_torch
from benchmarks.ops.cases import define_nms
from benchmarks.ops.page import complexity_table

from .complexity import FAMILIES, GROWTH

ROOT = Path(__file__).parents[2]
FACTOR = 8
SLACK = {"ops": 1.5, "bytes": 1.5, "seconds": 4.0}
SMALL = {"ops": 60, "bytes": 4_096, "seconds": 0.02}  # differences below these are not judged
MEASURED = [family for family in FAMILIES if family.call]
LOADED = ("rfft 48,000", "fold 192 of 28x28", "searchsorted 100,000 in 10,000")


@dataclass(frozen=True)
class Cost:
    ops: int
    bytes: int
    seconds: float


class _Call(torch.nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


@pytest.fixture(scope="module", autouse=True)
def nms():
    if hasattr(torch.ops.torchvision, "nms"):  # another test file has defined it
        yield
    else:
        yield define_nms()


def _op_count(operation):
    return sum(
        1 + _op_count(inner.operation)
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    )


async def _run(program, args):
    with tempfile.TemporaryDirectory() as folder:
        asset = program.save_asset(Path(folder) / "m.aimodel")
        size = (Path(folder) / "m.aimodel" / "main.mlirb").stat().st_size
        async with asset.executable() as model:
            function = model.load_function("main")
            leaves = pytree.tree_leaves(args)
            names = function.desc.input_names
            feeds = {n: runtime.ndarray(a) for n, a in zip(names, leaves, strict=True)}
            seconds = []
            for _ in range(3):
                start = time.process_time()
                await function(feeds)
                seconds.append(time.process_time() - start)
            return size, min(seconds)


def _cost(family, n):
    torch.manual_seed(0)
    function, args = family.call(n)
    module = function if isinstance(function, torch.nn.Module) else _Call(function)
    program = coreai_torch.convert(module.eval(), args, verify=False)
    module = getattr(program, "_mlir_module", None) or program._module._mlir_module
    size, seconds = asyncio.run(_run(program, args))
    return Cost(_op_count(module.operation), size, seconds)


# Sums of segment lengths are in 64 bits; other tests check the warning.
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize("family", MEASURED, ids=lambda family: family.ops)
def test_cost_grows_no_faster_than_declared(family):
    small, large = _cost(family, family.n), _cost(family, family.n * FACTOR)
    declared = {"ops": family.program, "bytes": family.constants, "seconds": family.time}
    for measure, growth in declared.items():
        before, after = getattr(small, measure), getattr(large, measure)
        allowed = GROWTH[growth](family.n * FACTOR) / GROWTH[growth](family.n)
        grown = after - before
        assert grown <= SMALL[measure] or after <= before * allowed * SLACK[measure], (
            f"{family.ops}: {measure} grew from {before} to {after} between n = {family.n} and "
            f"{family.n * FACTOR}; declared: {growth}"
        )


def test_scans_of_a_dynamic_length_take_linear_time():
    """A step that copies the stack of all rows would make the time grow 64 times."""

    def scan(x):
        def combine(state, row):
            return state * 0.9 + row, state + row

        return torch._higher_order_ops.scan(combine, torch.zeros(4_096), x)

    steps = torch.export.Dim("steps", min=2, max=4_096)
    short, long = torch.randn(256, 4_096), torch.randn(256 * FACTOR, 4_096)
    program = coreai_torch.convert(
        _Call(scan), (short,), dynamic_shapes=(({0: steps},),), verify=False
    )
    before, after = (asyncio.run(_run(program, (x,)))[1] for x in (short, long))
    assert after <= before * FACTOR * SLACK["seconds"]


@pytest.mark.parametrize(("few", "many"), [(4_096, 32_768), (4_093, 32_749)])
def test_transforms_of_a_dynamic_length_grow_as_declared(few, many):
    """Powers of two are products of small factors; primes need a convolution."""
    program = coreai_torch.convert(
        _Call(lambda x: torch.fft.rfft(x).abs()),
        (torch.randn(few),),
        dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),),
        verify=False,
    )
    before, after = (asyncio.run(_run(program, (torch.randn(n),)))[1] for n in (few, many))
    growth = GROWTH["n^(4/3)"]
    assert after <= before * growth(many) / growth(few) * SLACK["seconds"]


def test_transform_of_a_smooth_dynamic_length_is_not_a_convolution():
    program = coreai_torch.convert(
        _Call(lambda x: torch.fft.rfft(x).abs()),
        (torch.randn(48_000),),
        dynamic_shapes=(({0: torch.export.Dim.DYNAMIC},),),
        verify=False,
    )
    smooth, prime = (asyncio.run(_run(program, (torch.randn(n),)))[1] for n in (48_000, 48_017))
    assert smooth * 3 < prime


@pytest.mark.parametrize("name", LOADED)
def test_loading_takes_little_memory(name):
    command = [sys.executable, ROOT / "benchmarks" / "ops" / "child.py", name]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, env=environment, timeout=900
    )
    figures = json.loads(done.stdout.splitlines()[-1])
    assert figures["grown"] < 200
    assert figures["error"] < 1e-5


def test_families_that_are_not_linear_have_a_reason():
    plain = {"matmul of n x n"}
    unexplained = [f.ops for f in FAMILIES if f.time not in ("1", "n") and not f.reason]
    assert set(unexplained) <= plain


def test_page_has_the_declared_costs():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert complexity_table(FAMILIES) in page
