"""Errors of emulated kernels, the cache of compiled kernels, and the speed of a run."""

import re
import resource
import time

import pytest
import torch
from kernels.large_gallery import TILED_MATMUL, matmul
from kernels.small_sources import ran

from coreai_torch import MetalParameter, TorchMetalKernel
from coreai_torch.kernels import compiler

X = torch.linspace(-3, 3, 64)
TYPE = {"x": "TYPE"}


def test_compile_error_shows_the_line_of_src():
    with pytest.raises(ValueError, match="'small_source' does not compile") as caught:
        ran("float v = x[id];\n  out[id] = vv + 1;", X)
    assert re.search(
        r"vv. was not declared.*\n\s+src:2 \|   out\[id\] = vv \+ 1;\n\s+\^", str(caught.value)
    )


def test_compile_error_shows_the_line_of_helper_src():
    helpers = "\nfloat twice(float v) {\n    return v * tow;\n}"
    with pytest.raises(ValueError, match=r"helper_src:3 \|     return v \* tow;"):
        ran("out[id] = twice(x[id]);", X, helper_src=helpers)


def test_too_few_indices_is_a_compile_error():
    with pytest.raises(ValueError, match="as many indices as it has axes") as caught:
        ran("out[id] = x[id];", torch.zeros(4, 4), shape=(4,))
    assert "src:1" in str(caught.value)


def test_double_raises():
    with pytest.raises(ValueError, match="'double', a type that Metal does not have"):
        ran("double v = x[id]; out[id] = v;", X)


def test_compiled_kernels_are_cached_by_content(monkeypatch):
    first = ran("out[id] = x[id] * 3;", X)

    def never(arguments):
        raise AssertionError("compiled again")

    monkeypatch.setattr(compiler, "_run", never)
    assert torch.equal(ran("out[id] = x[id] * 3;", X), first)
    with pytest.raises(AssertionError, match="compiled again"):
        ran(f"out[id] = x[id] * {time.time_ns()}.0f;", X)


def test_missing_compiler_raises_with_a_hint(monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    compiler.compiler.cache_clear()
    try:
        with pytest.raises(ValueError, match="needs a C\\+\\+ compiler"):
            ran("out[id] = x[id];", X)
    finally:
        compiler.compiler.cache_clear()


INVALID = {
    "out of bounds": ("out[id + 1] = x[id];", r"index 64 is out of bounds .* result 'out'"),
    "before the start": ("out[id] = x[int(id) - 1];", r"index -1 is out of bounds .* input 'x'"),
    "an array": (
        "float a[4] = {}; out[id] = a[id] + x[id];",
        r"index 4 .* array of type 'float \[",
    ),
    "a write to an input": ("x[id] = 1; out[id] = 2;", r"writes to the input 'x' at \[0\]"),
    "a wild pointer": (
        "device float* p = nullptr; out[id] = x[id]; p[id] = 1;",
        "crashed with signal 11",
    ),
    "too deep a recursion": (
        "out[id] = deep(int(x[id]) + 100000000);",
        r"more than 128 KiB of local variables",
    ),
}


@pytest.mark.parametrize("what", INVALID)
def test_invalid_access_raises_instead_of_crashing(what):
    src, message = INVALID[what]
    helpers = """
    __attribute__((noinline)) int deep(int n) {
        volatile int pad[100];
        pad[n % 100] = n;
        return n ? deep(n - 1) + pad[n % 100] : 0;
    }
    """
    with pytest.raises(ValueError, match=message):
        ran(src, X, helper_src=helpers if "deep" in src else None)


def test_endless_kernel_times_out():
    with pytest.raises(ValueError, match=r"did not end within 0\.5 seconds"):
        ran("volatile int go = 1; while (go) {} out[id] = x[id];", X, timeout=0.5)


def test_tiled_matmul_of_512_takes_less_than_two_cpu_seconds_per_core():
    params = [
        MetalParameter("id2", "uint2", "thread_position_in_grid"),
        MetalParameter("lid2", "uint2", "thread_position_in_threadgroup"),
    ]
    kernel = TorchMetalKernel(
        "tiled_512", ["x", "y"], ["out"], TILED_MATMUL, matmul, params, template_dtypes=TYPE
    )
    x, y = torch.randn(512, 512), torch.randn(512, 512)
    how = {
        "threads_per_grid": (512, 512, 1),
        "threads_per_thread_group": (16, 16, 1),
        "result_shapes": [[512, 512]],
    }
    kernel.emulate(x, y, **how)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    got = kernel.emulate(x, y, **how)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    torch.testing.assert_close(got, x @ y, rtol=1e-4, atol=1e-3)
    # CPU seconds of both cores together, so that other work on the machine does not matter.
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < 4
