"""Metal features of the CPU emulator, compared with numbers computed by torch."""

import pytest
import torch
from kernels.small_sources import ID, ran

from coreai_torch import MetalParameter
from coreai_torch.numerics.tolerance import Tolerance, limits

FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_TWO_ROUNDINGS = "a body of several operations rounds after each; torch computes in float32"
TOLERANCE = limits(
    {
        torch.float16: Tolerance(2e-3, _TWO_ROUNDINGS),
        torch.bfloat16: Tolerance(2e-2, _TWO_ROUNDINGS),
    }
)


X = torch.linspace(-3, 3, 64)
TYPE = {"x": "TYPE"}

UNARY = {
    "exp(v)": torch.exp,
    "exp2(v)": torch.exp2,
    "log(abs(v) + TYPE(1))": lambda x: torch.log(x.abs() + 1),
    "sin(v)": torch.sin,
    "cos(v)": torch.cos,
    "tanh(v)": torch.tanh,
    "atan(v)": torch.atan,
    "sqrt(fabs(v))": lambda x: x.abs().sqrt(),
    "rsqrt(fabs(v) + TYPE(1))": lambda x: (x.abs() + 1).rsqrt(),
    "floor(v)": torch.floor,
    "ceil(v)": torch.ceil,
    "trunc(v)": torch.trunc,
    "rint(v)": torch.round,
    "sign(v)": torch.sign,
    "saturate(v)": lambda x: x.clamp(0, 1),
    "precise::exp(v)": torch.exp,
    "fast::cos(v)": torch.cos,
    "fma(v, v, v)": lambda x: x * x + x,
    "pow(fabs(v), TYPE(1.5))": lambda x: x.abs() ** 1.5,
    "max(v, TYPE(0))": torch.relu,
    "clamp(v, TYPE(-1), TYPE(1))": lambda x: x.clamp(-1, 1),
    "mix(v, TYPE(1), TYPE(0.25))": lambda x: x + (1 - x) * 0.25,
    "select(TYPE(2), v, v > TYPE(0))": lambda x: torch.where(x > 0, x, 2),
    "copysign(TYPE(2), v)": lambda x: torch.copysign(torch.full_like(x, 2), x),
    "v * TYPE(0.5) + TYPE(1)": lambda x: x * 0.5 + 1,
    "isnan(v / TYPE(0) * TYPE(0)) ? TYPE(1) : v": lambda x: torch.ones_like(x),
    "v < TYPE(0) ? TYPE(-v) : v": torch.abs,
}


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_unary_functions_agree_with_torch(dtype):
    """Test all functions with one source: one column of the result for each."""
    body = "const TYPE v = x[id];\n" + "\n".join(
        f"out[{i}, id] = TYPE({expression});" for i, expression in enumerate(UNARY)
    )
    x = X.to(dtype)
    got = ran(body, x, shape=(64, len(UNARY)), template_dtypes=TYPE)
    wide = x.float()
    for i, (expression, expected) in enumerate(UNARY.items()):
        torch.testing.assert_close(
            got[:, i].float(),
            expected(wide).to(dtype).float(),
            rtol=TOLERANCE[dtype],
            atol=TOLERANCE[dtype],
            msg=lambda m, e=expression: f"{e}: {m}",
        )


def test_half_is_rounded_after_every_operation():
    x = torch.full((1,), 1.0, dtype=torch.float16)
    tiny = 2.0**-11
    got = ran(f"half v = x[id]; out[id] = (v + {tiny}h) + {tiny}h - v;", x)
    assert got.item() == 0  # in float32 it would be 2 ** -10


def test_decimal_literal_is_a_float():
    got = ran("out[id] = 0.1 == 0.1f ? sizeof(0.1) + x[id] : 0;", torch.zeros(1))
    assert got.item() == 4


INTEGERS = {
    "popcount(v)": lambda v: bin(v & 0xFFFFFFFF).count("1"),
    "clz(v)": lambda v: 32 - (v & 0xFFFFFFFF).bit_length(),
    "ctz(v)": lambda v: ((v & -v).bit_length() - 1) if v else 32,
    "abs(v)": abs,
    "v / 7": lambda v: int(v / 7),
    "v >> 2": lambda v: v >> 2,
    "mulhi(v, 1 << 20)": lambda v: (v << 20) >> 32,
    "min(v, 3)": lambda v: min(v, 3),
    "int(extract_bits(uint(v), 2, 3))": lambda v: (v & 0xFFFFFFFF) >> 2 & 7,
    "insert_bits(v, 5, 1, 3)": lambda v: (v & ~0b1110) | 0b1010,
    "int(as_type<uint>(float(v)) >> 31)": lambda v: int(v < 0),
    "int(absdiff(v, 4) % 1000)": lambda v: abs(v - 4) % 1000,
    "addsat(v, 2147483647)": lambda v: min(v + 2147483647, 2147483647),
    "rotate(v, 4) == ((v << 4) | int(uint(v) >> 28)) ? 1 : 0": lambda v: 1,
    "int(reverse_bits(uint(v)) >> 31)": lambda v: v & 1,
    "int(hadd(v, 3))": lambda v: (v + 3) >> 1,
}


def test_integer_functions_agree_with_python():
    values = [0, 1, -1, 5, -17, 1000, 2**30, -(2**31) + 1]
    body = "const int v = x[id];\n" + "\n".join(
        f"out[{i}, id] = {expression};" for i, expression in enumerate(INTEGERS)
    )
    got = ran(body, torch.tensor(values, dtype=torch.int32), shape=(len(values), len(INTEGERS)))
    for i, (expression, expected) in enumerate(INTEGERS.items()):
        assert got[:, i].tolist() == [expected(v) for v in values], expression


VECTORS = {
    "v.x + v.w": 5,
    "v.wzyx.x": 4,
    "v.xy.y + v.zw.x": 5,
    "dot(v, v)": 30,
    "dot(v.xyz, v.yzw)": 20,
    "length(v.xy * float2(3, 2))": 5,
    "float(v.bgra.z)": 1,
    "normalize(float2(0, 2)).y": 1,
    "cross(float3(1, 0, 0), float3(0, 1, 0)).z": 1,
    "(v * 2.0f + 1.0f).w": 9,
    "(v > 2.0f).x ? 1.0f : 7.0f": 7,
    "any(v == 4.0f) && !all(v == 4.0f) ? 1.0f : 0.0f": 1,
    "max(v, 2.5f).x": 2.5,
    "float4(v.xy, float2(8, 9)).z": 8,
    "float(half4(v).w)": 4,
    "float(bfloat2(v.xy).y)": 2,
    "float(as_type<half2>(as_type<uint>(half2(1, 2))).y)": 2,
    "float(uint4(v).z % 2)": 1,
    "(float3x3(2) * float3(1, 2, 3)).z": 6,
    "transpose(float2x2(float2(1, 2), float2(3, 4)))[0].y": 3,
    "float(sizeof(float3) + sizeof(packed_float3))": 28,
    "abs(-v).y": 2,
    "select(v, v * 10.0f, bool4(true, false, true, false)).z": 30,
    "clamp(v, 2.0f, 3.0f).w": 3,
    "v[2]": 3,
    "float(numeric_limits<short>::max())": 32767,
}


def test_vectors_have_swizzles_constructors_and_arithmetic():
    body = "const float4 v = float4(1, 2, 3, 4);\n" + "\n".join(
        f"out[{i}] = x[0] + {expression};" for i, expression in enumerate(VECTORS)
    )
    got = ran(body, torch.zeros(1), params=(), shape=(len(VECTORS),))
    assert dict(zip(VECTORS, got.tolist(), strict=True)) == VECTORS


def test_swizzles_can_be_written_to():
    src = """
    float4 v = float4(1, 2, 3, 4);
    v.xy = v.zw;
    v.wz += float2(10, 20);
    v.rgb *= 2.0f;
    for (int i = 0; i < 4; ++i) out[i] = v[i] + x[0];
    """
    assert ran(src, torch.zeros(1), params=(), shape=(4,)).tolist() == [6, 8, 46, 14]


def test_conditional_of_bfloat_and_integer():
    src = "out[id] = id > 1 ? x[id] : id == 0 ? 3 : 0.5f;"
    x = torch.arange(4, dtype=torch.bfloat16)
    assert ran(src, x).tolist() == [3, 0.5, 2, 3]


PLACES = {
    "thread_position_in_grid": ("uint3", lambda x, y, z: (x, y, z)),
    "thread_position_in_threadgroup": ("ushort3", lambda x, y, z: (x % 4, y % 2, 0)),
    "threadgroup_position_in_grid": ("uint3", lambda x, y, z: (x // 4, y // 2, z)),
    "threads_per_grid": ("uint3", lambda x, y, z: (6, 3, 2)),
    "grid_size": ("uint3", lambda x, y, z: (6, 3, 2)),
    "grid_origin": ("uint3", lambda x, y, z: (0, 0, 0)),
    "threadgroups_per_grid": ("uint3", lambda x, y, z: (2, 2, 2)),
    "threads_per_threadgroup": ("uint3", lambda x, y, z: _edge(x, y)),
    "dispatch_threads_per_threadgroup": ("uint3", lambda x, y, z: (4, 2, 1)),
    "thread_index_in_threadgroup": ("uint", lambda x, y, z: x % 4 + y % 2 * _edge(x, y)[0]),
    "thread_index_in_simdgroup": ("uint", lambda x, y, z: x % 4 + y % 2 * _edge(x, y)[0]),
    "simdgroup_index_in_threadgroup": ("ushort", lambda x, y, z: 0),
    "simdgroups_per_threadgroup": ("uint", lambda x, y, z: 1),
    "dispatch_simdgroups_per_threadgroup": ("uint", lambda x, y, z: 1),
    "threads_per_simdgroup": ("uint", lambda x, y, z: 32),
    "thread_execution_width": ("uint", lambda x, y, z: 32),
    "thread_index_in_quadgroup": ("uint", lambda x, y, z: (x % 4 + y % 2 * _edge(x, y)[0]) % 4),
    "quadgroup_index_in_threadgroup": (
        "uint",
        lambda x, y, z: (x % 4 + y % 2 * _edge(x, y)[0]) // 4,
    ),
    "quadgroups_per_threadgroup": (
        "uint",
        lambda x, y, z: -(-_edge(x, y)[0] * _edge(x, y)[1] // 4),
    ),
    "dispatch_quadgroups_per_threadgroup": ("uint", lambda x, y, z: 2),
}


def _edge(x, y):
    """Return the size of the threadgroup in a grid of 6 by 3 with groups of 4 by 2."""
    return min(4, 6 - x // 4 * 4), min(2, 3 - y // 2 * 2), 1


def test_every_thread_attribute():
    params = [MetalParameter("at", "uint3", "thread_position_in_grid")]
    lines, columns = [], []
    for attribute, (type_, _) in PLACES.items():
        name = "at" if attribute == "thread_position_in_grid" else f"the_{attribute}"
        if name != "at":
            params.append(MetalParameter(name, type_, attribute))
        for part in ("[0]", "[1]", "[2]") if type_.endswith("3") else ("",):
            lines.append(f"out[{len(columns)}, at.x, at.y, at.z] = {name}{part} + x[0];")
            columns.append((attribute, int(part[1]) if part else None))
    got = ran(
        "\n".join(lines),
        torch.zeros(1, dtype=torch.int32),
        params=params,
        grid=(6, 3, 2),
        group=(4, 2, 1),
        shape=(2, 3, 6, len(columns)),
    )
    for z, y, x in ((z, y, x) for z in range(2) for y in range(3) for x in range(6)):
        for i, (attribute, part) in enumerate(columns):
            expected = PLACES[attribute][1](x, y, z)
            wanted = expected if part is None else expected[part]
            assert got[z, y, x, i].item() == wanted, (attribute, x, y, z)


LANES = torch.arange(32, dtype=torch.int32)
SIMD = {
    "simd_sum(v)": [496] * 32,
    "simd_product(v == 3 ? 2 : 1)": [2] * 32,
    "simd_max(v)": [31] * 32,
    "simd_min(v + 5)": [5] * 32,
    "simd_or(v)": [31] * 32,
    "simd_and(v | 32)": [32] * 32,
    "simd_xor(v)": [0] * 32,
    "simd_prefix_inclusive_sum(v)": [i * (i + 1) // 2 for i in range(32)],
    "simd_prefix_exclusive_sum(v)": [i * (i - 1) // 2 for i in range(32)],
    "simd_shuffle(v, ushort(31 - v))": [31 - i for i in range(32)],
    "simd_shuffle_xor(v, 5)": [i ^ 5 for i in range(32)],
    "simd_shuffle_down(v, 2)": [i + 2 if i < 30 else i for i in range(32)],
    "simd_shuffle_up(v, 3)": [i - 3 if i > 2 else i for i in range(32)],
    "simd_shuffle_rotate_down(v, 4)": [(i + 4) % 32 for i in range(32)],
    "simd_shuffle_rotate_up(v, 4)": [(i - 4) % 32 for i in range(32)],
    "simd_shuffle_and_fill_up(v, v + 100, 1)": [131, *range(31)],
    "simd_shuffle_and_fill_down(v, v + 100, 1)": [*range(1, 32), 100],
    "simd_broadcast(v, 7)": [7] * 32,
    "simd_broadcast_first(v + 1)": [1] * 32,
    "simd_all(v < 32)": [1] * 32,
    "simd_any(v == 40)": [0] * 32,
    "int(ulong(simd_ballot(v % 2 == 0)) & 0xff)": [0x55] * 32,
    "simd_is_first()": [1] + [0] * 31,
    "quad_sum(v)": [sum(range(i // 4 * 4, i // 4 * 4 + 4)) for i in range(32)],
    "quad_shuffle_xor(v, 1)": [i ^ 1 for i in range(32)],
    "quad_broadcast(v, 2)": [i // 4 * 4 + 2 for i in range(32)],
}


def test_simdgroup_lanes_exchange_values():
    body = "const int v = x[id];\n" + "\n".join(
        f"out[id, {i}] = {expression};" for i, expression in enumerate(SIMD)
    )
    got = ran(body, LANES, shape=(len(SIMD), 32), group=(32, 1, 1))
    for i, (expression, expected) in enumerate(SIMD.items()):
        assert got[i].tolist() == expected, expression


def test_diverged_lanes_reconverge():
    src = """
    int steps = 0;
    for (int i = 0; i < x[id] % 5; ++i) steps += simd_sum(1);
    const int after = simd_sum(1);
    int odd = 0;
    if (x[id] % 2) odd = simd_sum(1);
    out[id] = after * 10000 + odd * 100 + steps;
    """
    got = ran(src, LANES, group=(32, 1, 1))
    active = [sum(1 for i in range(32) if i % 5 > step) for step in range(4)]
    assert got.tolist() == [
        320000 + (1600 if i % 2 else 0) + sum(active[: i % 5]) for i in range(32)
    ]


def test_function_constants():
    helpers = """
    constant int COUNT [[function_constant(0)]];
    constant bool TWICE [[function_constant(1)]];
    constant float UNSET [[function_constant(2)]];
    constant float SCALE = is_function_constant_defined(UNSET) ? UNSET : 0.5f;
    """
    src = "out[id] = x[id] * COUNT * (TWICE ? 2 : 1) * SCALE;"
    given = {0: 3, "TWICE": True}
    got = ran(src, torch.ones(4), helper_src=helpers, function_constants=given)
    assert got.tolist() == [3] * 4
    with pytest.raises(ValueError, match="function constant 'COUNT' has no value"):
        ran(src, torch.ones(4), helper_src=helpers)


def test_templates_pointers_and_tables_in_helpers():
    helpers = """
    constant float TABLE[3] = {1, 10, 100};
    struct Pair { float low, high; };
    template <typename T, int N> T total(thread const T* values) {
        T sum = 0;
        for (int i = 0; i < N; ++i) sum += values[i];
        return sum;
    }
    void both(const device float* p, thread Pair& pair, constant float* table) {
        pair = {p[0] * table[1], p[0] * table[2]};
    }
    """
    src = """
    float mine[3] = {x[id], TABLE[0], TABLE[1]};
    Pair pair;
    both(&x[id], pair, TABLE);
    out[id] = total<float, 3>(mine) + pair.low + pair.high;
    """
    got = ran(src, torch.tensor([1.0, 2.0]), helper_src=helpers)
    assert got.tolist() == [122, 233]


def test_atomics_on_floats_and_exchanges():
    src = """
    threadgroup atomic_float sum;
    threadgroup atomic_int most, swaps;
    if (id == 0) {
        atomic_store_explicit(&sum, 0.0f, memory_order_relaxed);
        atomic_store_explicit(&most, -1, memory_order_relaxed);
        atomic_store_explicit(&swaps, 0, memory_order_relaxed);
    }
    threadgroup_barrier(mem_flags::mem_threadgroup);
    atomic_fetch_add_explicit(&sum, x[id], memory_order_relaxed);
    atomic_fetch_max_explicit(&most, int(id), memory_order_relaxed);
    int expected = 0;
    if (atomic_compare_exchange_weak_explicit(
            &swaps, &expected, 1, memory_order_relaxed, memory_order_relaxed)) {}
    threadgroup_barrier(mem_flags::mem_threadgroup);
    if (id == 0) {
        out[0] = atomic_load_explicit(&sum, memory_order_relaxed);
        out[1] = atomic_load_explicit(&most, memory_order_relaxed);
        out[2] = atomic_exchange_explicit(&swaps, 5, memory_order_relaxed);
    }
    """
    assert ran(src, torch.ones(64) * 0.5, shape=(3,)).tolist() == [32, 63, 1]


def test_tensor_extents_and_slices():
    src = """
    out[0] = x.get_extent(0) * 100 + x.get_extent(1) * 10 + x.get_rank();
    out[1] = x(1, 2);
    auto part = x.slice(1, 1);
    out[2] = part[0, 1] + part.get_extent(0);
    out[3] = (&x[0, 0])[5];
    out[4] = x.get_stride(1);
    """
    x = torch.arange(12.0).view(3, 4)  # in Metal: 4 along the first axis, 3 along the second
    got = ran(src, x, params=(), grid=(1, 1, 1), shape=(5,))
    assert got.tolist() == [432, 9, 9 + 3, 5, 4]


def test_large_threadgroups_and_many_of_them():
    src = """
    threadgroup int seen[1024];
    seen[lid] = x[id];
    threadgroup_barrier(mem_flags::mem_threadgroup);
    out[id] = seen[1023 - lid];
    """
    params = (ID, MetalParameter("lid", "uint", "thread_index_in_threadgroup"))
    x = torch.arange(20 * 1024, dtype=torch.int32)
    got = ran(src, x, params=params, group=(1024, 1, 1))
    assert torch.equal(got, x.view(20, 1024).flip(1).flatten())


def test_results_of_every_dtype():
    for dtype in (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int64, torch.float64):
        x = torch.tensor([0, 1, 1, 0]).to(dtype)
        assert torch.equal(ran("out[id] = x[id];", x), x)
