"""Findings of kernel verification and their messages."""

import re

import pytest
import torch

from coreai_torch import MetalParameter, TorchMetalKernel

PARAMS = [
    MetalParameter("id", "uint", "thread_position_in_grid"),
    MetalParameter("lid", "uint", "thread_index_in_threadgroup"),
    MetalParameter("tg", "uint", "threadgroup_position_in_grid"),
]
X = torch.randn(256, generator=torch.Generator().manual_seed(0))
LAUNCH = {
    "threads_per_grid": (256, 1, 1),
    "threads_per_thread_group": (64, 1, 1),
    "result_shapes": [[256]],
}


def mirrored(x: torch.Tensor) -> torch.Tensor:
    return x.view(4, 64).flip(1).flatten()


def same(x: torch.Tensor) -> torch.Tensor:
    return x


def verified(src, torch_defn=same, x=X, **how):
    kernel = TorchMetalKernel("watched", ["x"], ["out"], src, torch_defn, PARAMS)
    return kernel.verify(x, **{**LAUNCH, **how})


SHARED = """threadgroup float t[64];
t[lid] = x[id];
{barrier}
out[id] = t[63 - lid];"""
BARRIER = "threadgroup_barrier(mem_flags::{flags});"

CLEAN = {
    "elementwise": ("out[id] = x[id];", same),
    "a barrier in its place": (
        SHARED.format(barrier=BARRIER.format(flags="mem_threadgroup")),
        mirrored,
    ),
    "device memory behind a barrier": (
        "out[id] = x[id]; threadgroup_barrier(mem_flags::mem_device);\n"
        "float v = out[tg * 64 + 63 - lid]; threadgroup_barrier(mem_flags::mem_device);\n"
        "out[id] = v;",
        mirrored,
    ),
    "equal values from several threads": (
        "for (uint i = 0; i < 64; ++i) out[tg * 64 + i] = x[tg * 64 + i];",
        same,
    ),
    "a simdgroup's barrier": (
        "threadgroup float t[64]; t[lid] = x[id]; simdgroup_barrier(mem_flags::mem_threadgroup);\n"
        "float v = t[lid ^ 1]; simdgroup_barrier(mem_flags::mem_threadgroup); t[lid] = v;\n"
        "simdgroup_barrier(mem_flags::mem_threadgroup); out[id] = t[lid ^ 1];",
        same,
    ),
    "both kinds of memory": (
        "threadgroup float t[64]; t[lid] = x[id]; out[id] = 0;\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup | mem_flags::mem_device);\n"
        "out[tg * 64 + 63 - lid] = t[lid];",
        mirrored,
    ),
}


@pytest.mark.parametrize("what", CLEAN)
def test_correct_kernel_has_no_findings(what):
    src, torch_defn = CLEAN[what]
    found = verified(src, torch_defn)
    assert found
    assert repr(found) == "Metal kernel 'watched' agrees with its reference"


FINDINGS = {
    "two threads write": (
        "out[id / 2] = x[id];",
        "race",
        r"data race on the result 'out' at \[0\]: writes, without synchronization, another value "
        r"than the thread at \(0, 0, 0\), in the thread at \(1, 0, 0\)\n\s+"
        r"src:1 \| out\[id / 2\] = x\[id\];",
    ),
    "threadgroups write": ("out[lid] = x[id]; out[id] = x[id];", "race", "data race on the result"),
    "a neighbour's result is read": (
        "out[id] = x[id];\nout[id] = out[(id + 255) % 256];",
        "race",
        r"reads, without synchronization, what is written by(.|\n)*src:2",
    ),
    "a missing barrier": (
        SHARED.format(barrier=""),
        "race",
        r"data race on threadgroup memory 't'(.|\n)*src:4 \| out\[id\] = t\[63 - lid\];",
    ),
    "a barrier of the wrong memory": (
        SHARED.format(barrier=BARRIER.format(flags="mem_device")),
        "race",
        "data race on threadgroup memory 't'",
    ),
    "a barrier that orders device memory is missing": (
        "out[id] = x[id]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "float v = out[tg * 64 + 63 - lid]; threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[id] = v;",
        "race",
        r"data race on the result 'out'",
    ),
    "the next round overwrites": (
        "threadgroup float t[64]; float sum = 0;\n"
        "for (int k = 0; k < 2; ++k) {\n"
        "t[lid] = x[id] * k;\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "sum += t[63 - lid];\n"
        "}\nout[id] = sum;",
        "race",
        r"data race on threadgroup memory 't'(.|\n)*src:5",
    ),
    "one overwrites what the others read": (
        "threadgroup float t; if (lid == 0) t = x[id];\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup);\n"
        "out[id] = t;\n"
        "if (lid == 63) t = 1;",
        "race",
        r"writes, without synchronization, what is read by the thread at \(0, 0, 0\), in the "
        r"thread at \(63, 0, 0\)(.|\n)*src:4",
    ),
    "an element is read first": (
        "out[id] += x[id];",
        "uninitialised",
        r"reads the result 'out' at \[0\] before it is written",
    ),
    "threadgroup memory is read first": (
        "threadgroup float t[64]; if (lid == 0) t[0] = 1;\n"
        "threadgroup_barrier(mem_flags::mem_threadgroup); out[id] = x[id] + 0 * t[lid];",
        "uninitialised",
        r"reads threadgroup memory 't', byte 4 before",
    ),
    "an element is left out": (
        "if (id != 77) out[id] = x[id];",
        "unwritten",
        r"the result 'out' is never written at \[77\] and at 0 more of its 256 elements",
    ),
    "an index too far": (
        "out[id] = x[id + 1];",
        "bounds",
        r"index 256 is out of bounds for index 0 of the input 'x'.*\(255, 0, 0\)",
    ),
    "a pointer too far": (
        "device float* p = &x[0];\nout[id] = p[id + 1];",
        "astray",
        r"a pointer 0 bytes past the input 'x'(.|\n)*src:2",
    ),
    "a write to an input": ("out[id] = x[id];\nx[id] = 0;", "input", r"writes to the input 'x'"),
    "an array left": (
        "float a[3] = {0, 0, 0}; for (int i = 0; i < int(lid); ++i) a[i] = x[id]; out[id] = a[0];",
        "array",
        r"index 3 is out of bounds for an array",
    ),
    "some return before the barrier": (
        "if (id > 200) return;\nthreadgroup_barrier(mem_flags::mem_threadgroup); out[id] = x[id];",
        "early",
        r"only 9 of the 64 threads(.|\n)*src:2",
    ),
    "two barriers for one": (
        "if (lid < 20)\nthreadgroup_barrier(mem_flags::mem_none);\nelse\n"
        "threadgroup_barrier(mem_flags::mem_none);\nout[id] = x[id];",
        "barrier",
        r"another barrier, at src:4",
    ),
    "an atomic and a plain access": (
        "device atomic_float* p = (device atomic_float*)&out[id];\n"
        "atomic_store_explicit(p, x[id], memory_order_relaxed);\n"
        "out[id ^ 1] = x[id ^ 1] + 1;",
        "race",
        r"data race on the result 'out'",
    ),
}


@pytest.mark.parametrize("what", FINDINGS)
def test_finding_names_the_thread_and_line(what):
    src, kind, message = FINDINGS[what]
    found = verified(src)
    assert not found
    assert kind in {finding.kind for finding in found.findings}
    assert re.search(message, repr(found)), repr(found)


def test_first_difference_has_an_index():
    def grid(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    src = "out[at.x, at.y] = x[at.x, at.y] * (at.y == 3 && at.x > 4 ? 3 : 2);"
    at = MetalParameter("at", "uint2", "thread_position_in_grid")
    kernel = TorchMetalKernel("parted", ["x"], ["out"], src, grid, [at])
    x = torch.ones(5, 8)
    how = {
        "threads_per_grid": (8, 5, 1),
        "threads_per_thread_group": (8, 5, 1),
        "result_shapes": [[5, 8]],
    }
    found = kernel.verify(x, **how)
    (difference,) = found.differences
    assert (difference.index, difference.metal, difference.torch) == ((3, 5), 3.0, 2.0)
    assert (difference.count, difference.elements) == (3, 40)
    assert "result 'out' differs first at [3, 5]: Metal computes 3.0, torch 2.0" in repr(found)


def test_meta_tensors_are_replaced_by_random_values():
    seen = []

    def watched(x: torch.Tensor) -> torch.Tensor:
        if not isinstance(x, torch._subclasses.FakeTensor):
            seen.append(x)
        return x

    assert verified("out[id] = x[id];", watched, torch.empty(256, device="meta"), trials=2)
    assert len({tuple(x.tolist()) for x in seen}) == 2  # the error analysis calls it once more


@pytest.mark.parametrize(
    "dtype", [torch.int8, torch.uint8, torch.int32, torch.bool, torch.bfloat16]
)
def test_random_values_of_every_dtype(dtype):
    assert verified("out[id] = x[id];", same, torch.empty(256, device="meta", dtype=dtype))


def test_nan_and_infinity_must_agree():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 0.0]).repeat(64)
    assert verified("out[id] = x[id];", same, x)
    found = verified("out[id] = isnan(x[id]) ? 0.0f : x[id];", same, x)
    assert found.differences[0].index == (0,)
    found = verified("out[id] = isinf(x[id]) ? 3e38f : x[id];", same, x)
    assert found.differences[0].index == (1,)


def test_custom_tolerance():
    assert not verified("out[id] = x[id] * 1.001f;", same)
    assert verified("out[id] = x[id] * 1.001f;", same, tolerance=1e-2)


def test_data_dependent_reference():
    def looks(x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.sum().item() > 1e9 else x

    assert verified("out[id] = x[id];", looks)
