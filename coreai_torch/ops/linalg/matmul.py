"""Lower matrix products; linear layers and batched products are not decomposed.

Torch's decomposition would turn a linear layer over three axes into views around a product, and
copy its weight for every batch element if the strides are not contiguous.
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

import torch
from torch import Tensor

from ...ir import dialect as cai
from ...ir import shapes
from ...ir.dialect import Value
from ...lowering import ConstantOrValue, Ctx, Number, case, decomposes, lowers
from ...lowering.cases import b1, bf16, c64, f16, f32, i8, i32, i64, u8
from ...torch_compat import aten

_NARROW_INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.uint16)
_NAN = float("nan")
_INF = float("inf")
# Small integers: the runtime (1.0.0b3) accumulates float16 products in float16.
_SMALL_INTEGERS = {"low": -3, "high": 3, "values": (1.0, -2.0, 3.0, 0.0, 2.0, -1.0, -3.0)}


def _product(x: Value, y: Value) -> Value:
    """Return `x @ y` for matrices, or batches of them whose leading sizes broadcast."""
    dtype = cai.dtype(x)
    if dtype == torch.bfloat16:
        return _bfloat16_product(x, y)
    if dtype not in _NARROW_INTEGERS:
        return cai.matmul(x, y)
    # The runtime (1.0.0b3) aborts on an integer overflow, where torch wraps: 100 * 100 in int8.
    wide = cai.matmul(cai.cast(x, torch.int32), cai.cast(y, torch.int32))
    return cai.cast(wide, dtype)


def _bfloat16_product(x: Value, y: Value) -> Value:
    """Return the bfloat16 product without broadcasting a batch.

    With a broadcast operand the runtime (1.0.0b3) accumulates in bfloat16: 4096 times 0.1 sums to
    32.
    """
    if y.type.rank == 2 and x.type.rank > 2:
        *batch, rows, inner = cai.sizes(x)
        flat = cai.reshape(x, [shapes.product([*batch, rows]), inner])
        return cai.reshape(cai.matmul(flat, y), [*batch, rows, cai.size(y, 1)])
    if x.type.shape[:-2] == y.type.shape[:-2]:
        return cai.matmul(x, y)
    pairs = zip_longest(*(reversed(cai.sizes(v)[:-2]) for v in (x, y)), fillvalue=1)
    batch_sizes = [a if b == 1 else b if a == 1 else shapes.maximum(a, b) for a, b in pairs]
    full = (cai.broadcast_to(v, [*reversed(batch_sizes), *cai.sizes(v)[-2:]]) for v in (x, y))
    return cai.matmul(*full)


def _contracts_zero_size(x: Value) -> bool:
    return bool(x.type.shape[-1] == 0)


def matmul(ctx: Ctx, x: Value, y: Value) -> Value:
    """Return `x @ y` for any ranks: a vector on the left is a row, on the right a column."""
    if _contracts_zero_size(x):
        rows, columns = cai.sizes(x)[:-1], cai.sizes(y)[y.type.rank - 1 :]
        known = [*rows, *(columns if y.type.rank > 1 else ())]
        return cai.zeros(x, ctx.dims(known[-ctx.out.rank :] if ctx.out.rank else ()))
    left = cai.expand_dims(x, [0]) if x.type.rank == 1 else x
    right = cai.expand_dims(y, [1]) if y.type.rank == 1 else y
    result = _product(left, right)
    rank = result.type.rank
    row, column = (rank - 2, x.type.rank == 1), (rank - 1, y.type.rank == 1)
    return cai.shrink_dims(result, [axis for axis, added in (row, column) if added])


@lowers(
    aten.mm.default,
    cases=[
        case(f32(2, 3), f32(3, 4)),
        case(bf16(2, 3), bf16(3, 2)),
        case(f16(2, 7, **_SMALL_INTEGERS), f16(7, 3, **_SMALL_INTEGERS)),
        case(i32(2, 3), i32(3, 2)),
        case(i8(2, 3, values=(100,)), i8(3, 2, values=(100,))),
        case(u8(2, 3, values=(200,)), u8(3, 2, values=(3,))),
        case(c64(2, 3), c64(3, 2)),
        case(f32(2, 0), f32(0, 3), static_only="a zero-size operand"),
    ],
)
@lowers(
    aten.bmm.default,
    cases=[
        case(f32(2, 3, 4), f32(2, 4, 5)),
        case(f32(1, 3, 4), f32(1, 4, 1)),
        case(i64(2, 3, 4), i64(2, 4, 5)),
        case(f32(2, 3, 0), f32(2, 0, 1), static_only="a zero-size operand"),
    ],
)
def mm(ctx: Ctx, x: Value, mat2: Value) -> Value:
    return matmul(ctx, x, mat2)


@lowers(aten.mv.default, cases=[case(f32(2, 3), f32(3)), case(i32(2, 3), i32(3))])
def mv(ctx: Ctx, x: Value, vec: Value) -> Value:
    return matmul(ctx, x, vec)


@lowers(
    aten.matmul.default,
    cases=[
        case(f32(3), f32(3)),
        case(f32(3), f32(3, 4)),
        case(f32(2, 3), f32(3)),
        case(f32(2, 3), f32(3, 4)),
        case(f32(3), f32(2, 3, 4)),
        case(f32(2, 4, 3), f32(3)),
        case(f32(2, 4, 3), f32(3, 5)),
        case(f32(4, 3), f32(2, 3, 5)),
        case(f32(5, 1, 4, 3), f32(2, 3, 5)),
        case(f32(2, 1, 4, 3), f32(1, 3, 3, 2)),
        case(i64(2, 2, 3), i64(2, 3, 2)),
        case(bf16(2, 2, 3), bf16(3, 2)),
        case(bf16(2, 2, 4096, values=(0.1,)), bf16(4096, 2, values=(1.0,))),
        case(bf16(3, 1, 2, 512, values=(0.1,)), bf16(2, 512, 2, values=(1.0,))),
        case(bf16(2, 512, values=(0.1,)), bf16(2, 512, 2, values=(1.0,))),
        case(c64(2, 2, 3), c64(2, 3, 2)),
        case(f32(2, 4, 0), f32(0, 5), static_only="a zero-size operand"),
        case(f32(0), f32(0), static_only="a zero-size operand"),
    ],
)
def _matmul(ctx: Ctx, x: Value, other: Value) -> Value:
    return matmul(ctx, x, other)


@lowers(
    aten.linear.default,
    cases=[
        case(f32(2, 3), f32(4, 3), f32(4)),
        case(f32(2, 5, 3), f32(4, 3), f32(4)),
        case(f32(2, 2, 5, 3), f32(4, 3)),
        case(f32(3), f32(4, 3), f32(4)),
        case(f32(2, 3), f32(3)),
        case(f32(2, 3), f32(4, 3, constant=True), f32(4, constant=True)),
        case(bf16(2, 3), bf16(4, 3), bf16(4)),
        case(f16(2, 2, 7, **_SMALL_INTEGERS), f16(3, 7, **_SMALL_INTEGERS), f16(3)),
        case(i64(2, 3), i64(4, 3), i64(4)),
        case(f32(2, 0), f32(4, 0), f32(4), static_only="a zero-size operand"),
    ],
)
def linear(ctx: Ctx, x: Value, weight: ConstantOrValue, bias: Value | None) -> Value:
    result = matmul(ctx, x, _transposed(ctx, weight))
    return result if bias is None else cai.add(result, bias)


def _transposed(ctx: Ctx, weight: Any) -> Value:
    """Return the transposed weight; a small constant is transposed before it is emitted."""
    if isinstance(weight, Tensor):
        if weight.dim() == 2 and weight.numel() <= cai.SMALL:
            return cai.tensor_constant(weight.detach().t().contiguous(), ctx.path("weight"))
        weight = cai.tensor_constant(weight, ctx.path("weight"))
    transposed: Value = cai.transpose(weight, [1, 0]) if weight.type.rank == 2 else weight
    return transposed


def _add_scaled(x: Value, result: Value, beta: Number, alpha: Number) -> Value:
    if alpha != 1:
        result = cai.mul(result, cai.like(result, alpha))
    if beta == 0:  # torch ignores the input then, even if it is NaN
        return result
    return cai.add(result, x if beta == 1 else cai.mul(x, cai.like(x, beta)))


@lowers(
    aten.addmm.default,
    cases=[
        case(f32(4), f32(2, 3), f32(3, 4)),
        case(f32(2, 4), f32(2, 3), f32(3, 4), beta=2, alpha=0.5),
        case(f32(2, 1, values=(_NAN,)), f32(2, 3), f32(3, 4), beta=0),
        case(f32(2, 1), f32(2, 3, values=(_INF,)), f32(3, 4), alpha=0, beta=0.5),
        case(i32(4), i32(2, 3), i32(3, 4), alpha=3),
        case(i32(4), i32(2, 3), i32(3, 4), alpha=2.7, beta=-2),
        case(c64(2, 2), c64(2, 3), c64(3, 2), beta=0.5),
        case(f32(4), f32(2, 0), f32(0, 4), static_only="a zero-size operand"),
    ],
)
def addmm(ctx: Ctx, x: Value, mat1: Value, mat2: Value, beta: Number, alpha: Number) -> Value:
    if alpha == 0:  # torch omits the product: infinity times zero would be NaN
        zeros = cai.zeros(x, [cai.size(mat1, 0), cai.size(mat2, 1)])
        return _add_scaled(x, zeros, beta, 1)
    return _add_scaled(x, matmul(ctx, mat1, mat2), beta, alpha)


@lowers(
    aten.addmv.default,
    cases=[
        case(f32(2), f32(2, 3), f32(3)),
        case(f32(), f32(2, 3), f32(3), beta=2, alpha=0.5),
        case(f32(2, values=(_NAN,)), f32(2, 3), f32(3), beta=0),
        case(f32(2), f32(2, 3, values=(_INF,)), f32(3), alpha=0),
        case(i64(2), i64(2, 3), i64(3), alpha=-2),
    ],
)
def addmv(ctx: Ctx, x: Value, mat: Value, vec: Value, beta: Number, alpha: Number) -> Value:
    if alpha == 0:
        return _add_scaled(x, cai.zeros(x, [cai.size(mat, 0)]), beta, 1)
    return _add_scaled(x, matmul(ctx, mat, vec), beta, alpha)


@lowers(
    aten.baddbmm.default,
    cases=[
        case(f32(2, 3, 5), f32(2, 3, 4), f32(2, 4, 5)),
        case(f32(5), f32(2, 3, 4), f32(2, 4, 5), beta=0.5, alpha=2),
        case(f32(3, 1, values=(_NAN,)), f32(2, 3, 4), f32(2, 4, 5), beta=0),
        case(i64(2, 3, 1), i64(2, 3, 4), i64(2, 4, 5), alpha=3),
    ],
)
def baddbmm(ctx: Ctx, x: Value, batch1: Value, batch2: Value, beta: Number, alpha: Number) -> Value:
    return _add_scaled(x, matmul(ctx, batch1, batch2), beta, alpha)


@decomposes(
    aten.addbmm.default,
    cases=[
        case(f32(3, 5), f32(2, 3, 4), f32(2, 4, 5)),
        case(f32(5), f32(2, 3, 4), f32(2, 4, 5), beta=0.5, alpha=2),
        case(f32(3, 5, values=(_NAN,)), f32(2, 3, 4), f32(2, 4, 5), beta=0),
        case(i64(3, 5), i64(2, 3, 4), i64(2, 4, 5), alpha=3),
        case(f32(3, 5), f32(0, 3, 4), f32(0, 4, 5), static_only="a zero-size operand"),
    ],
)
def addbmm(
    x: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """Compute the sum over the batch as one longer product."""
    count, rows, inner = batch1.shape
    left = batch1.permute(1, 0, 2).reshape(rows, count * inner)
    right = batch2.reshape(count * inner, batch2.shape[2])
    return torch.addmm(x, left, right, beta=beta, alpha=alpha)


@decomposes(
    aten.addr.default,
    cases=[
        case(f32(2, 3), f32(2), f32(3)),
        case(f32(), f32(2), f32(3), beta=0.5, alpha=2),
        case(f32(2, 3, values=(_NAN,)), f32(2), f32(3), beta=0),
        case(f16(4, 5), f16(4), f16(5), beta=3, alpha=0.7),
        case(bf16(4, 5), bf16(4), bf16(5)),
        case(i64(2, 3), i64(2), i64(3), alpha=-2),
        case(b1(2, 3), b1(2), b1(3)),
        case(b1(2, 3), b1(2), b1(3), beta=False, alpha=True),
        case(b1(2, 3), f32(2), f32(3)),
    ],
)
def addr(x: Tensor, vec1: Tensor, vec2: Tensor, *, beta: Number = 1, alpha: Number = 1) -> Tensor:
    """Round after every step, as torch's kernel does; torch's decomposition rounds once."""
    outer = vec1.unsqueeze(1) * vec2
    if x.dtype == outer.dtype == torch.bool:
        product = outer if alpha else torch.zeros_like(outer)
        return product | x if beta else product
    scaled = outer if alpha == 1 else outer * alpha
    if beta == 0:
        return scaled
    return (x if beta == 1 else x * beta) + scaled


@decomposes(
    aten._trilinear.default,
    cases=[
        case(f32(2, 3), f32(4, 3, 5), f32(2, 5), [1, 3], [0], [1, 2], [2, 3]),
        case(*[f32(2, 3)] * 3, [], [], [], [1], 0, static_only="export fixes the unrolled axis"),
    ],
)
def _trilinear(
    i1: Tensor,
    i2: Tensor,
    i3: Tensor,
    expand1: list[int],
    expand2: list[int],
    expand3: list[int],
    sumdim: list[int],
    unroll_dim: int = 1,
) -> Tensor:
    expanded = []
    for tensor, axes in ((i1, expand1), (i2, expand2), (i3, expand3)):
        for axis in sorted(axes):
            tensor = tensor.unsqueeze(axis)
        expanded.append(tensor)
    first, second, third = expanded
    multiplied = first * second * third
    total = multiplied.sum(sumdim) if sumdim else multiplied
    return total.to(i1.dtype)  # as torch's kernel, whatever the other dtypes are


@decomposes(
    aten.bilinear.default,
    cases=[
        case(f32(2, 3), f32(2, 4), f32(5, 3, 4), f32(5)),
        case(f32(2, 6, 3), f32(2, 6, 4), f32(5, 3, 4)),
        case(f32(3), f32(4), f32(5, 3, 4), f32(5)),
        case(f32(4), f32(4), f32(4, 4, 4), f32(4)),  # a weight that could be mistaken for a batch
    ],
)
def bilinear(x1: Tensor, x2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Compute two products; torch multiplies all operands before it sums."""
    outs, width, _ = weight.shape
    half = torch.matmul(x1, weight.permute(1, 0, 2).reshape(width, -1))
    half = half.reshape(*x1.shape[:-1], outs, weight.shape[2])
    result = torch.matmul(half, x2.unsqueeze(-1)).squeeze(-1)
    return result if bias is None else result + bias


@decomposes(
    aten._int_mm.default,
    cases=[case(i8(17, 8, values=(100, -128, 127)), i8(8, 8, values=(127, -128, 5)))],
)
def _int_mm(x: Tensor, mat2: Tensor) -> Tensor:
    return torch.mm(x.to(torch.int32), mat2.to(torch.int32))
