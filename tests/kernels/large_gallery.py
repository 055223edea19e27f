"""The second half of the gallery: kernels over tiles, heads and packed weights."""

from __future__ import annotations

import torch
from kernels.gallery import entry, launch, normal, up
from torch import Tensor


def rope(x: Tensor, base: float) -> Tensor:
    rows, half = x.shape[0], x.shape[2] // 2
    rates = base ** (-torch.arange(half, dtype=torch.float32) / half)
    angles = torch.arange(rows, dtype=torch.float32)[:, None, None] * rates
    a, b = x.float().split(half, 2)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat([a * cos - b * sin, b * cos + a * sin], 2).to(x.dtype)


entry(
    "rope",
    rope,
    "x base",
    "out",
    "id3",
    """
    const uint half_ = x.get_extent(0) / 2;
    const uint i = id3.x, head = id3.y, place = id3.z;
    const float angle = place * pow(base, -float(i) / half_);
    const float2 v = float2(x[i, head, place], x[i + half_, head, place]);
    float c;
    const float s = sincos(angle, c);
    const float2 rotated = float2(v.x * c - v.y * s, dot(v.yx, float2(c, s)));
    out[i, head, place] = TYPE(rotated.x);
    out[i + half_, head, place] = TYPE(rotated.y);
    """,
    arguments=lambda dtype, n: [normal(n, 3, 16, dtype=dtype), 10000.0],
    launch=lambda x, b: launch((8, 3, x.shape[0]), (8, 1, 4), x.shape),
    sizes=(1, 9),
)


def matmul(x: Tensor, y: Tensor) -> Tensor:
    return (x.float() @ y.float()).to(x.dtype)


TILED_MATMUL = """
    constexpr int T = 16;
    threadgroup TYPE a[T][T], b[T][T];
    const int K = x.get_extent(0), M = x.get_extent(1), N = y.get_extent(0);
    const int row = id2.y, col = id2.x;
    float sum = 0;
    for (int k0 = 0; k0 < K; k0 += T) {
        const int ka = k0 + lid2.x, kb = k0 + lid2.y;
        a[lid2.y][lid2.x] = row < M && ka < K ? x[ka, row] : TYPE(0);
        b[lid2.y][lid2.x] = col < N && kb < K ? y[col, kb] : TYPE(0);
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int k = 0; k < T; ++k) sum += float(a[lid2.y][k]) * float(b[k][lid2.x]);
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (row < M && col < N) out[col, row] = TYPE(sum);
"""


def tiles(x, y):
    """Launch complete tiles, also at the edges: all threads of a group must reach the barriers."""
    shape = (x.shape[0], y.shape[1])
    return launch((up(shape[1], 16), up(shape[0], 16), 1), (16, 16, 1), shape)


entry(
    "tiled_matmul",
    matmul,
    "x y",
    "out",
    "id2 lid2",
    TILED_MATMUL,
    arguments=lambda dtype, n: [normal(n, 40, dtype=dtype), normal(40, 24, dtype=dtype, seed=1)],
    launch=tiles,
    sizes=(16, 37),
)

entry(
    "simdgroup_matmul",
    matmul,
    "x y",
    "out",
    "tile",
    """
    const ulong K = x.get_extent(0), N = y.get_extent(0);
    simdgroup_matrix<TYPE, 8, 8> a, b;
    simdgroup_float8x8 sum = make_filled_simdgroup_matrix<float, 8, 8>(0.0f);
    for (ulong k = 0; k < K; k += 8) {
        simdgroup_load(a, &x[0, 0], K, ulong2(k, tile.y * 8));
        simdgroup_load(b, &y[0, 0], N, ulong2(tile.x * 8, k));
        simdgroup_multiply_accumulate(sum, a, b, sum);
    }
    simdgroup_store(sum, &out[0, 0], N, ulong2(tile.x * 8, tile.y * 8));
    """,
    arguments=lambda dtype, n: [normal(n, 24, dtype=dtype), normal(24, 16, dtype=dtype, seed=1)],
    launch=lambda x, y: launch((64, x.shape[0] // 8, 1), (32, 1, 1), (x.shape[0], 16)),
    sizes=(8, 32),
)


def attention(x: Tensor, key: Tensor, value: Tensor, scale: float) -> Tensor:
    q, k, v = (t.float() for t in (x, key, value))
    return (torch.softmax(q @ k.transpose(1, 2) * scale, -1) @ v).to(x.dtype)


# One thread for each query; keys and values are loaded tile by tile into threadgroup memory, and
# the softmax is accumulated as its running maximum and sum.
entry(
    "flash_attention",
    attention,
    "x key value scale",
    "out",
    "id2 lid2",
    """
    constexpr int D = 16, T = 32;
    threadgroup float keys[T][D], values[T][D];
    const int queries = x.get_extent(1), tokens = key.get_extent(1);
    const int q = id2.x, head = id2.y, lane = lid2.x;
    float query[D], sum[D] = {}, most = -INFINITY, total = 0;
    for (int d = 0; d < D; ++d) query[d] = q < queries ? float(x[d, q, head]) * scale : 0.0f;
    for (int first = 0; first < tokens; first += T) {
        const int count = min(T, tokens - first);
        if (lane < count) {
            for (int d = 0; d < D; ++d) {
                keys[lane][d] = key[d, first + lane, head];
                values[lane][d] = value[d, first + lane, head];
            }
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
        for (int t = 0; t < count; ++t) {
            float score = 0;
            for (int d = 0; d < D; ++d) score += query[d] * keys[t][d];
            const float next = max(most, score), shrink = exp(most - next), p = exp(score - next);
            total = total * shrink + p;
            for (int d = 0; d < D; ++d) sum[d] = sum[d] * shrink + p * values[t][d];
            most = next;
        }
        threadgroup_barrier(mem_flags::mem_threadgroup);
    }
    if (q < queries)
        for (int d = 0; d < D; ++d) out[d, q, head] = TYPE(sum[d] / total);
    """,
    arguments=lambda dtype, n: [
        normal(2, n, 16, dtype=dtype),
        normal(2, n + 3, 16, dtype=dtype, seed=1),
        normal(2, n + 3, 16, dtype=dtype, seed=2),
        0.25,
    ],
    launch=lambda x, k, v, s: launch((up(x.shape[1], 32), 2, 1), (32, 1, 1), x.shape),
    sizes=(5, 70),
)


def int4_matmul(x: Tensor, packed: Tensor, scales: Tensor) -> Tensor:
    low, high = packed & 15, packed >> 4
    weights = torch.stack([low, high], 2).flatten(1).float() - 8
    weight = weights * scales.float().repeat_interleave(32, 1)
    return (x.float() @ weight.t()).to(x.dtype)


# Two weights to a byte, one scale for each 32 of them.
entry(
    "int4_matmul",
    int4_matmul,
    "x packed scales",
    "out",
    "lane tile",
    """
    const uint bytes = packed.get_extent(0), row = tile.y, col = tile.x;
    float sum = 0;
    for (uint i = lane; i < bytes; i += 32) {
        const uchar both = packed[i, col];
        const float2 w = float2(both & 0xf, both >> 4) - 8.0f;
        const float2 v = float2(x[2 * i, row], x[2 * i + 1, row]);
        sum += dot(w, v) * float(scales[i / 16, col]);
    }
    sum = simd_sum(sum);
    if (lane == 0) out[col, row] = TYPE(sum);
    """,
    arguments=lambda dtype, n: [
        normal(n, 128, dtype=dtype),
        (normal(10, 64, seed=1) * 100).int().remainder(256).to(torch.uint8),
        normal(10, 4, dtype=dtype, seed=2).abs(),
    ],
    launch=lambda x, p, s: launch((320, x.shape[0], 1), (32, 1, 1), (x.shape[0], 10)),
    sizes=(1, 5),
)


def stencil(x: Tensor) -> Tensor:
    kernel = torch.tensor([[0.0, 1, 0], [1, -4, 1], [0, 1, 0]])
    wide = x.float()[None, None]
    return torch.nn.functional.conv2d(wide, kernel[None, None], padding=1)[0, 0].to(x.dtype)


entry(
    "stencil",
    stencil,
    "x",
    "out",
    "id2",
    """
    const int w = x.get_extent(0), h = x.get_extent(1);
    const int2 here = int2(id2);
    float sum = -4 * float(x[here.x, here.y]);
    const int2 steps[4] = {int2(1, 0), int2(-1, 0), int2(0, 1), int2(0, -1)};
    for (int2 step : steps) {
        const int2 at = here + step;
        if (all(at >= 0) && all(at < int2(w, h))) sum += float(x[at.x, at.y]);
    }
    out[here.x, here.y] = TYPE(sum);
    """,
    arguments=lambda dtype, n: [normal(n, 11, dtype=dtype)],
    launch=lambda x: launch((x.shape[1], x.shape[0], 1), (8, 8, 1), x.shape),
    sizes=(1, 20),
)


def transpose(x: Tensor) -> Tensor:
    return x.t().contiguous()


entry(
    "transpose",
    transpose,
    "x",
    "out",
    "lid2 tile",
    """
    threadgroup TYPE block[16][17];
    const uint w = x.get_extent(0), h = x.get_extent(1);
    const uint2 from = tile * 16 + lid2, to = tile.yx * 16 + lid2;
    if (from.x < w && from.y < h) block[lid2.y][lid2.x] = x[from.x, from.y];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (to.x < h && to.y < w) out[to.x, to.y] = block[lid2.x][lid2.y];
    """,
    arguments=lambda dtype, n: [normal(n, 21, dtype=dtype)],
    launch=lambda x: launch((32, up(x.shape[0], 16), 1), (16, 16, 1), (21, x.shape[0])),
    sizes=(16, 35),
)


def causal_conv(x: Tensor, weight: Tensor) -> Tensor:
    padded = torch.nn.functional.pad(x.float().t(), (3, 0))[None]
    return torch.nn.functional.conv1d(padded, weight.float()[:, None], groups=6)[0].t().to(x.dtype)


entry(
    "causal_conv",
    causal_conv,
    "x weight",
    "out",
    "id2",
    """
    float sum = 0;
    for (int k = 0; k < 4; ++k) {
        const int t = int(id2.y) - 3 + k;
        if (t >= 0) sum = fma(float(weight[k, id2.x]), float(x[id2.x, t]), sum);
    }
    out[id2.x, id2.y] = TYPE(sum);
    """,
    arguments=lambda dtype, n: [normal(n, 6, dtype=dtype), normal(6, 4, dtype=dtype, seed=1)],
    launch=lambda x, w: launch((6, x.shape[0], 1), (6, 8, 1), x.shape),
    sizes=(3, 20),
)


def embedding(x: Tensor, ids: Tensor) -> Tensor:
    return x[ids.long()]


entry(
    "embedding",
    embedding,
    "x ids",
    "out",
    "id2",
    "out[id2.x, id2.y] = x[id2.x, ids[id2.y]];",
    arguments=lambda dtype, n: [normal(12, 8, dtype=dtype), torch.arange(n) * 7 % 12],
    launch=lambda x, ids: launch((8, ids.shape[0], 1), (8, 4, 1), (ids.shape[0], 8)),
    sizes=(2, 30),
)
