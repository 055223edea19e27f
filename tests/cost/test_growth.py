"""Programs, constants, time and memory grow no faster than `complexity.py` declares."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import coreai_torch.ops  # noqa: F401  fills the registry
from benchmarks.ops import vision_ops
from benchmarks.ops.cases import define_nms
from benchmarks.ops.page import complexity_table
from coreai_torch.lowering.registry import BUILTIN

from .complexity import FAMILIES, LINEAR
from .family import FACTOR, GROWTH, Family
from .measuring import SEES_MEMORY, converted, cost, costs, short_name

ROOT = Path(__file__).parents[2]
MB = 1 << 20
SLACK = {"ops": 1.5, "bytes": 1.5, "memory": 1.5, "convert": 4.0, "load": 4.0, "run": 4.0}
# Differences below these are not judged. A table of n x n booleans has 67 MB at the larger size of
# most families (8,192), and the peak memory of the same call differs by 5 MB between runs.
SMALL = {"ops": 60, "bytes": 4_096, "memory": 16 * MB, "convert": 1.0, "load": 0.1, "run": 0.02}
LOADED = ("rfft 48,000", "fold 192 of 28x28", "searchsorted 100,000 in 10,000")
MEASURED = [
    pytest.param(family, dynamic, id=f"{family.ops}{', dynamic' if dynamic else ''}")
    for family in (*FAMILIES, *LINEAR)
    for dynamic in (False, True)
    if family.sizes in ("both", "dynamic" if dynamic else "static")
]


@pytest.fixture(scope="module", autouse=True)
def libraries():
    """Define the ops of torchvision, and load a first program, which takes 15 MB more."""
    defined = [define_nms()] if not hasattr(torch.ops.torchvision, "nms") else []
    if not hasattr(torch.ops.torchvision, "roi_align"):
        defined.append(vision_ops.define())
    x = (torch.randn(4),)
    cost(converted(torch.sin, x), x)
    return defined


def _declared(family):
    """Return the growth of each measure; a program is converted and loaded in linear time."""
    parts = [GROWTH[growth] for growth in (family.program, family.constants)]

    def program(n):
        return max(part(n * FACTOR) / part(n) for part in parts)

    named = {"ops": family.program, "bytes": family.constants}
    named |= {"memory": family.memory, "run": family.time}
    grown = {m: GROWTH[g](family.n * FACTOR) / GROWTH[g](family.n) for m, g in named.items()}
    return grown | {"convert": program(family.n), "load": program(family.n)}


def _excesses(family, small, large):
    """Return a sentence for each measure that grows faster than declared."""
    found = []
    for measure, allowed in _declared(family).items():
        before, after = getattr(small, measure), getattr(large, measure)
        is_judged = after - before > SMALL[measure]
        if is_judged and after > before * allowed * SLACK[measure]:
            found.append(
                f"{measure} grew from {before} to {after} between n = {family.n} and "
                f"{family.n * FACTOR}; declared: {allowed:.1f} times"
            )
    return found


# Sums of segment lengths are in 64 bits; other tests check the warning.
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize(("family", "dynamic"), MEASURED)
def test_cost_grows_no_faster_than_declared(family, dynamic):
    small, large = costs(family, dynamic)
    assert set(family.lowers.split()) <= large.lowered
    assert not _excesses(family, small, large)


def _all_pairs(n):
    return lambda x: (x[:, None] == x[None]).any(1), (torch.randn(n),)


def _unrolled(n):
    def run(x):
        for _ in range(n):
            x = x.sin() * 2
        return x

    return run, (torch.randn(4),)


def _stored_table(n):
    table = torch.rand(n, n)
    return lambda x: x @ table, (torch.randn(n),)


def _nested_loop(n):
    def run(x):
        return torch.while_loop(
            lambda k, y: k < n, lambda k, y: (k + 1, y * 0.999), (torch.tensor(0), x)
        )

    return run, (torch.randn(n * 64),)


@pytest.mark.parametrize(
    ("call", "n", "measure"),
    [
        pytest.param(
            _all_pairs,
            1_024,
            "memory",
            marks=pytest.mark.skipif(not SEES_MEMORY, reason="the peak cannot be reset"),
        ),
        (_all_pairs, 1_024, "run"),
        (_nested_loop, 256, "run"),
        (_unrolled, 16, "ops"),
        (_stored_table, 64, "bytes"),
    ],
)
def test_faster_growth_than_declared_is_found(call, n, measure):
    family = Family("wrongly declared", "n", call, n)
    measured = (_excesses(family, *costs(family, False)) for _ in range(4))  # times vary
    assert any(text.startswith(measure) for found in measured for text in found)


def test_every_lowering_has_a_declared_cost():
    """`ops/symbolic.py` computes numbers from sizes, and `ops/prims.py` calls other lowerings."""
    named = set().union(*(family.names for family in (*FAMILIES, *LINEAR)))
    others = ("ops.symbolic", "ops.prims")
    of_tensors = (e for e in BUILTIN if not e.fn.__module__.endswith(others))
    assert {short_name(entry.target) for entry in of_tensors} <= named


def test_transform_of_a_smooth_dynamic_length_is_not_a_convolution():
    axes = ({0: torch.export.Dim.DYNAMIC},)
    program = converted(lambda x: torch.fft.rfft(x).abs(), (torch.randn(48_000),), axes)
    smooth, prime = (cost(program, (torch.randn(n),)).run for n in (48_000, 48_017))
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
    assert {family.ops for family in FAMILIES if not family.reason} <= plain


@pytest.mark.stored
def test_page_has_the_declared_costs():
    page = (ROOT / "docs" / "benchmarks.md").read_text()
    assert complexity_table(FAMILIES) in page
