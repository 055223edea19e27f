"""Typical kernels, each with its reference and the sizes that it is tested with."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from coreai_torch import MetalParameter, TorchMetalKernel


def parameters(*names: str) -> list[MetalParameter]:
    """Return Metal parameters by the short names that the sources use."""
    known = {
        "id": ("uint", "thread_position_in_grid"),
        "id2": ("uint2", "thread_position_in_grid"),
        "id3": ("uint3", "thread_position_in_grid"),
        "lid": ("uint", "thread_index_in_threadgroup"),
        "lid2": ("uint2", "thread_position_in_threadgroup"),
        "row": ("uint", "threadgroup_position_in_grid"),
        "tile": ("uint2", "threadgroup_position_in_grid"),
        "size": ("uint", "threads_per_threadgroup"),
        "lane": ("uint", "thread_index_in_simdgroup"),
        "simd": ("uint", "simdgroup_index_in_threadgroup"),
        "simds": ("uint", "simdgroups_per_threadgroup"),
    }
    return [MetalParameter(name, *known[name]) for name in names]


@dataclass(frozen=True)
class Entry:
    """A kernel with its arguments and launch sizes."""

    kernel: TorchMetalKernel
    arguments: Callable[[torch.dtype, int], list[Any]]  # the dtype and the size
    launch: Callable[..., dict[str, Any]]  # of the arguments
    sizes: tuple[int, ...]
    dtypes: tuple[torch.dtype, ...] = (torch.float32, torch.float16, torch.bfloat16)


GALLERY: dict[str, Entry] = {}


def launch(grid, group, *shapes):
    return {
        "threads_per_grid": tuple(grid),
        "threads_per_thread_group": tuple(group),
        "result_shapes": [list(s) for s in shapes],
    }


def up(n, step):
    return (n + step - 1) // step * step


def one_group_per_row(x, *rest):
    """Launch a threadgroup of 128 threads for each row; the result has the input's shape."""
    return launch((128 * x.shape[0], 1, 1), (128, 1, 1), x.shape)


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def entry(name, torch_defn, inputs, results, params, src, *, template="x", helpers=None, **how):
    kernel = TorchMetalKernel(
        name,
        inputs.split(),
        results.split(),
        src,
        torch_defn,
        parameters(*params.split()),
        helper_src=helpers,
        template_dtypes={template: "TYPE"} if template else None,
    )
    GALLERY[name] = Entry(kernel, **how)


# Elementwise -------------------------------------------------------------------------------------


def saxpy(a: float, x: Tensor, y: Tensor) -> Tensor:
    return (a * x.float() + y.float()).to(x.dtype)


entry(
    "saxpy",
    saxpy,
    "a x y",
    "out",
    "id",
    "out[id] = TYPE(fma(a, float(x[id]), float(y[id])));",
    arguments=lambda dtype, n: [1.5, normal(n, dtype=dtype), normal(n, dtype=dtype, seed=1)],
    launch=lambda a, x, y: launch((x.shape[0], 1, 1), (64, 1, 1), x.shape),
    sizes=(64, 1000),
)


def swiglu(x: Tensor, gate: Tensor) -> Tensor:
    return (torch.nn.functional.silu(gate.float()) * x.float()).to(x.dtype)


# Four elements at a time through a vector pointer, the remainder one by one.
entry(
    "swiglu_vectors",
    swiglu,
    "x gate",
    "out",
    "id",
    """
    const uint n = x.get_extent(0);
    const uint first = id * 4;
    if (first + 4 <= n) {
        const float4 v = float4(*(device const TYPE4*)&x[first]);
        const float4 g = float4(*(device const TYPE4*)&gate[first]);
        *(device TYPE4*)&out[first] = TYPE4(silu4(g) * v);
    } else {
        for (uint i = first; i < n; ++i) {
            const float g = gate[i];
            out[i] = TYPE(g / (1.0f + exp(-g)) * float(x[i]));
        }
    }
    """,
    helpers="inline float4 silu4(float4 v) { return v / (1.0f + exp(-v)); }",
    arguments=lambda dtype, n: [normal(n, dtype=dtype), normal(n, dtype=dtype, seed=1)],
    launch=lambda x, g: launch(((x.shape[0] + 3) // 4, 1, 1), (32, 1, 1), x.shape),
    sizes=(128, 1003),
)


def blend(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    return torch.where(mask, x, y).clamp(-1, 1)


entry(
    "masked_blend",
    blend,
    "x y mask",
    "out",
    "id2",
    """
    const TYPE a = x[id2.x, id2.y], b = y[id2.x, id2.y];
    out[id2.x, id2.y] = clamp(select(b, a, mask[id2.x, id2.y]), TYPE(-1), TYPE(1));
    """,
    arguments=lambda dtype, n: [
        normal(n, 7, dtype=dtype),
        normal(n, 7, dtype=dtype, seed=1),
        normal(n, 7, seed=2) > 0,
    ],
    launch=lambda x, y, m: launch((x.shape[1], x.shape[0], 1), (8, 4, 1), x.shape),
    sizes=(5, 33),
)

# Reductions --------------------------------------------------------------------------------------


def row_sums(x: Tensor) -> Tensor:
    return x.float().sum(1).to(x.dtype)


entry(
    "row_sums",
    row_sums,
    "x",
    "out",
    "lid row size",
    """
    threadgroup float partial[128];
    const uint n = x.get_extent(0);
    float sum = 0;
    for (uint i = lid; i < n; i += size) sum += float(x[i, row]);
    partial[lid] = sum;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint half_ = size / 2; half_ > 0; half_ /= 2) {
        if (lid < half_) partial[lid] += partial[lid + half_];
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (lid == 0) out[row] = TYPE(partial[0]);
    """,
    arguments=lambda dtype, n: [normal(n, 300, dtype=dtype)],
    launch=lambda x: launch((128 * x.shape[0], 1, 1), (128, 1, 1), [x.shape[0]]),
    sizes=(1, 6),
)


def arg_max(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = x.max(1)
    return values, places.int()


entry(
    "row_argmax",
    arg_max,
    "x",
    "value place",
    "lane row",
    """
    const uint n = x.get_extent(0);
    float best = -INFINITY;
    uint where_ = 0xffffffffu;
    for (uint i = lane; i < n; i += 32) {
        const float v = x[i, row];
        if (v > best) { best = v; where_ = i; }
    }
    const float most = simd_max(best);
    const uint first = simd_min(best == most ? where_ : 0xffffffffu);
    if (simd_is_first()) { value[row] = TYPE(most); place[row] = int(first); }
    """,
    arguments=lambda dtype, n: [normal(n, 77, dtype=dtype)],
    launch=lambda x: launch((32 * x.shape[0], 1, 1), (32, 1, 1), [x.shape[0]], [x.shape[0]]),
    sizes=(1, 9),
)


def softmax(x: Tensor) -> Tensor:
    return torch.softmax(x.float(), 1).to(x.dtype)


REDUCE = """
template <typename F>
float across(float mine, threadgroup float* shared, uint lane, uint simd, uint simds, F fold) {
    if (lane == 0) shared[simd] = mine;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    float all = shared[0];
    for (uint i = 1; i < simds; ++i) all = fold(all, shared[i]);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    return all;
}
"""

entry(
    "softmax",
    softmax,
    "x",
    "out",
    "lid row size lane simd simds",
    """
    threadgroup float shared[32];
    const uint n = x.get_extent(0);
    float most = -INFINITY;
    for (uint i = lid; i < n; i += size) most = max(most, float(x[i, row]));
    most = across(simd_max(most), shared, lane, simd, simds,
                  [](float a, float b) { return max(a, b); });
    float sum = 0;
    for (uint i = lid; i < n; i += size) sum += exp(float(x[i, row]) - most);
    sum = across(simd_sum(sum), shared, lane, simd, simds,
                 [](float a, float b) { return a + b; });
    for (uint i = lid; i < n; i += size) out[i, row] = TYPE(exp(float(x[i, row]) - most) / sum);
    """,
    helpers=REDUCE,
    arguments=lambda dtype, n: [normal(n, 259, dtype=dtype) * 3],
    launch=one_group_per_row,
    sizes=(1, 5),
)


def layer_norm(x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:
    wide = (t.float() for t in (weight, bias))
    return torch.layer_norm(x.float(), (x.shape[1],), *wide, eps).to(x.dtype)


entry(
    "layer_norm",
    layer_norm,
    "x weight bias eps",
    "out",
    "lid row size lane simd simds",
    """
    threadgroup float shared[32];
    const auto plus = [](float a, float b) { return a + b; };
    const uint n = x.get_extent(0);
    float sum = 0, squares = 0;
    for (uint i = lid; i < n; i += size) sum += float(x[i, row]);
    const float mean = across(simd_sum(sum), shared, lane, simd, simds, plus) / n;
    for (uint i = lid; i < n; i += size) {
        const float d = float(x[i, row]) - mean;
        squares += d * d;
    }
    const float scale = rsqrt(across(simd_sum(squares), shared, lane, simd, simds, plus) / n + eps);
    for (uint i = lid; i < n; i += size)
        out[i, row] = TYPE((float(x[i, row]) - mean) * scale * float(weight[i]) + float(bias[i]));
    """,
    helpers=REDUCE,
    arguments=lambda dtype, n: [
        normal(n, 200, dtype=dtype) + 2,
        normal(200, dtype=dtype, seed=1),
        normal(200, dtype=dtype, seed=2),
        1e-5,
    ],
    launch=one_group_per_row,
    sizes=(1, 7),
)


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    wide = x.float()
    return (wide * torch.rsqrt(wide.square().mean(1, keepdim=True) + 1e-6) * weight.float()).to(
        x.dtype
    )


entry(
    "rms_norm",
    rms_norm,
    "x weight",
    "out",
    "lane row",
    """
    const uint n = x.get_extent(0);
    float squares = 0;
    for (uint i = lane; i < n; i += 32) squares += float(x[i, row]) * float(x[i, row]);
    for (ushort step = 16; step > 0; step /= 2) squares += simd_shuffle_xor(squares, step);
    const float scale = rsqrt(squares / n + 1e-6f);
    for (uint i = lane; i < n; i += 32) out[i, row] = TYPE(float(x[i, row]) * scale * weight[i]);
    """,
    arguments=lambda dtype, n: [normal(n, 96, dtype=dtype), normal(96, dtype=dtype, seed=1)],
    launch=lambda x, w: launch((32 * x.shape[0], 1, 1), (32, 1, 1), x.shape),
    sizes=(1, 5),
)


def prefix(x: Tensor) -> Tensor:
    return x.cumsum(1).to(x.dtype)


entry(
    "prefix_sums",
    prefix,
    "x",
    "out",
    "lid row lane simd",
    """
    threadgroup int totals[4];
    const uint n = x.get_extent(0);
    const int mine = lid < n ? x[lid, row] : 0;
    const int within = simd_prefix_inclusive_sum(mine);
    if (lane == 31) totals[simd] = within;
    threadgroup_barrier(mem_flags::mem_threadgroup);
    int before = 0;
    for (uint i = 0; i < simd; ++i) before += totals[i];
    if (lid < n) out[lid, row] = before + within;
    """,
    template=None,
    arguments=lambda dtype, n: [torch.arange(n * 100, dtype=dtype).reshape(n, 100) % 17],
    launch=one_group_per_row,
    sizes=(1, 4),
    dtypes=(torch.int32, torch.int64),
)


def histogram(x: Tensor) -> Tensor:
    return (x[:, :, None] == torch.arange(16, dtype=x.dtype)).sum(1).int()


entry(
    "histogram",
    histogram,
    "x",
    "counts",
    "lid row size",
    """
    threadgroup atomic_uint bins[16];
    if (lid < 16) atomic_store_explicit(&bins[lid], 0u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (int i = lid; i < x.get_extent(0); i += size)
        atomic_fetch_add_explicit(&bins[x[i, row]], 1u, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (lid < 16) counts[lid, row] = int(atomic_load_explicit(&bins[lid], memory_order_relaxed));
    """,
    template=None,
    arguments=lambda dtype, n: [(normal(n, 500).abs() * 7).clamp(max=15).to(dtype)],
    launch=lambda x: launch((128 * x.shape[0], 1, 1), (128, 1, 1), [x.shape[0], 16]),
    sizes=(1, 3),
    dtypes=(torch.int32, torch.uint8),
)


def device_histogram(x: Tensor) -> Tensor:
    return torch.bincount(x.long(), minlength=8)[:8].int()


# One threadgroup clears the result, then all its threads count in device memory.
entry(
    "histogram_in_device_memory",
    device_histogram,
    "x",
    "counts",
    "lid size",
    """
    device atomic_int* bins = (device atomic_int*)&counts[0];
    if (lid < 8) atomic_store_explicit(&bins[lid], 0, memory_order_relaxed);
    threadgroup_barrier(mem_flags::mem_device);
    for (int i = lid; i < x.get_extent(0); i += size)
        atomic_fetch_add_explicit(&bins[x[i]], 1, memory_order_relaxed);
    """,
    template=None,
    arguments=lambda dtype, n: [(normal(n).abs() * 3).clamp(max=7).to(dtype)],
    launch=lambda x: launch((256, 1, 1), (256, 1, 1), [8]),
    sizes=(100, 1000),
    dtypes=(torch.int32,),
)


def top_k(x: Tensor) -> tuple[Tensor, Tensor]:
    values, places = torch.sort(x, dim=1, descending=True, stable=True)
    return values[:, :4], places[:, :4].int()


# Each lane keeps its part; the overall maximum is removed four times.
entry(
    "top_k",
    top_k,
    "x",
    "values places",
    "lane row",
    """
    const uint n = x.get_extent(0);
    uint taken[4] = {n, n, n, n};
    for (uint k = 0; k < 4; ++k) {
        float best = -INFINITY;
        uint where_ = n;
        for (uint i = lane; i < n; i += 32) {
            bool used = false;
            for (uint j = 0; j < k; ++j) used = used || taken[j] == i;
            if (!used && (where_ == n || float(x[i, row]) > best)) { best = x[i, row]; where_ = i; }
        }
        const float most = simd_max(best);
        taken[k] = simd_min(best == most ? where_ : n);
        if (lane == 0) { values[k, row] = TYPE(most); places[k, row] = int(taken[k]); }
    }
    """,
    arguments=lambda dtype, n: [normal(n, 50, dtype=dtype)],
    launch=lambda x: launch((32 * x.shape[0], 1, 1), (32, 1, 1), [x.shape[0], 4], [x.shape[0], 4]),
    sizes=(1, 6),
)


def sort_rows(x: Tensor) -> Tensor:
    return x.sort(1).values


entry(
    "bitonic_sort",
    sort_rows,
    "x",
    "out",
    "lid row",
    """
    threadgroup TYPE keys[128];
    const uint n = x.get_extent(0);
    keys[lid] = lid < n ? x[lid, row] : TYPE(INFINITY);
    threadgroup_barrier(mem_flags::mem_threadgroup);
    for (uint run = 2; run <= 128; run *= 2) {
        for (uint step = run / 2; step > 0; step /= 2) {
            const uint other = lid ^ step;
            const TYPE mine = keys[lid], theirs = keys[other];
            threadgroup_barrier(mem_flags::mem_threadgroup);
            const bool rising = (lid & run) == 0, lower = lid < other;
            keys[lid] = rising == lower ? min(mine, theirs) : max(mine, theirs);
            threadgroup_barrier(mem_flags::mem_threadgroup);
        }
    }
    if (lid < n) out[lid, row] = keys[lid];
    """,
    arguments=lambda dtype, n: [normal(n, 100, dtype=dtype)],
    launch=one_group_per_row,
    sizes=(1, 3),
)
