"""The rounding model: how far a correct implementation of an op may be from torch's.

Another order of sums, fused multiply-adds, other approximations of transcendental functions and
other places of rounding all give correct results that differ from torch's. The model states the
difference that one op may add, by the kind of the op and in units of the last place of its dtype.
"""

from __future__ import annotations

import math
from enum import Enum, auto
from typing import Any

import torch

from ..ir.types import narrow
from ..torch_compat import HigherOrderOperator, OpOverload


class Kind(Enum):
    """How an op rounds."""

    EXACT = auto()  # moves or selects elements: adds no error
    ROUNDED = auto()  # correctly rounded arithmetic: one unit of the result
    SUM = auto()  # adds up products: units of the sum of the absolute terms
    STEP = auto()  # jumps where its operand crosses a threshold
    ORDER = auto()  # returns positions, which change where two scores are within their error
    BODY = auto()  # runs graphs: the ops inside round
    GENERAL = auto()  # anything else: one unit of each operand and two units of the result


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


_EXACT = _names("""
    _assert_async _assert_scalar _assert_tensor_metadata _conj _conj_physical _neg_view _to_copy
    _unsafe_view abs alias amax amin aminmax arange as_strided as_strided_scatter bitwise_and
    bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift bitwise_xor block_diag
    broadcast_tensors cat channel_shuffle clamp clamp_max clamp_min clone column_stack complex
    concat concatenate conj conj_physical constant_pad_nd contiguous copy copysign
    cummax cummin cartesian_prod combinations detach diag diag_embed diagonal diagonal_copy
    diagonal_scatter dropout dstack embedding empty empty_like empty_strided expand expand_copy eye
    feature_dropout fill flatten flip fliplr flipud fmax fmin full full_like gather glu_split
    hardtanh hstack im2col imag index index_copy index_fill index_put index_select isfinite isinf
    isnan isneginf isposinf lift_fresh_copy linalg_diagonal masked_fill masked_scatter
    masked_select max max_pool1d max_pool2d max_pool3d max_pool2d_with_indices
    max_pool3d_with_indices maximum meshgrid min minimum movedim narrow nan_to_num native_dropout
    neg new_empty new_empty_strided new_full new_ones new_zeros ones ones_like permute
    permute_copy pixel_shuffle pixel_unshuffle positive put real reflection_pad1d reflection_pad2d
    reflection_pad3d relu relu6 repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d reshape resolve_conj resolve_neg roll rot90 scalar_tensor scatter select
    select_copy select_scatter signbit slice slice_copy slice_scatter split split_copy
    split_with_sizes split_with_sizes_copy squeeze squeeze_copy stack sym_numel sym_size
    sym_stride t take take_along_dim threshold tile transpose tril tril_indices triu
    triu_indices unbind unbind_copy unflatten unfold unfold_copy unsqueeze unsqueeze_copy
    upsample_nearest1d upsample_nearest2d upsample_nearest3d view view_as view_as_complex
    view_as_real view_copy where zeros zeros_like
""")
_ROUNDED = _names("add div mul reciprocal rsub square sub true_divide")
_SUM = _names("""
    _adaptive_avg_pool2d _adaptive_avg_pool3d _convolution _embedding_bag
    _embedding_bag_forward_only _fft_c2c _trilinear _upsample_bicubic2d_aa _upsample_bilinear2d_aa
    _upsample_lanczos2d_aa adaptive_avg_pool1d adaptive_avg_pool2d
    adaptive_avg_pool3d addbmm addmm addmv addr avg_pool1d avg_pool2d avg_pool3d baddbmm bilinear
    bmm col2im conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d convolution
    cumsum dot einsum embedding_bag grid_sampler grid_sampler_2d grid_sampler_3d index_add inner
    linear matmul mean mm mv nanmean nansum scatter_add sum tensordot trace upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_trilinear3d vdot
""") - {"_fft_c2c"}
_STEP = _names("""
    all any bucketize ceil count_nonzero eq fake_quantize_per_channel_affine
    fake_quantize_per_tensor_affine floor floor_divide fmod frac ge gt heaviside histc le
    logical_and logical_not logical_or logical_xor lt ne nonzero nonzero_static remainder round
    searchsorted sgn sign trunc quantize_per_tensor quantize_per_channel
    quantize_per_token choose_qparams quantize_affine dequantize_affine choose_qparams_affine
""")
_ORDER = _names("""
    argmax argmin argsort kthvalue median mode nanmedian nms sort topk unique _unique2 unique_dim
    unique_consecutive
""")
# Their order is undefined between equal scores; argmax and stable sorts return the first.
_ARBITRARY = _names("argsort kthvalue median mode nanmedian nms sort topk")
# Reductions that select one element of a row, with its position.
_ROWS = {("max", "dim"), ("min", "dim"), ("max", "names_dim"), ("min", "names_dim")}


def overload(target: Any) -> tuple[str, str]:
    """Return the name of an op without its namespace, and of its overload."""
    if not isinstance(target, OpOverload):
        return getattr(target, "__name__", str(target)), ""
    return target.overloadpacket.__name__, target._overloadname


def kind_of(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> Kind:
    """Return how an op rounds on these arguments; `result` is torch's."""
    if isinstance(target, HigherOrderOperator):
        return Kind.GENERAL if overload(target)[0] == "flex_attention" else Kind.BODY
    if not isinstance(target, OpOverload):  # getitem, arithmetic of sizes
        return Kind.EXACT
    name, variant = overload(target)
    if (name, variant) in _ROWS:
        return Kind.ORDER
    if name == "_to_copy":
        return _kind_of_cast(args[0], result)
    if name == "abs" and args and isinstance(args[0], torch.Tensor) and args[0].is_complex():
        return Kind.GENERAL
    if name in ("div", "divide") and kwargs.get("rounding_mode") is not None:
        return Kind.STEP
    accumulates = name == "index_put" and len(args) > 3 and args[3]
    if accumulates or name in ("scatter_reduce", "index_reduce", "scatter"):
        return Kind.EXACT if name == "scatter" and "reduce" not in kwargs else Kind.GENERAL
    for names, kind in _BY_NAME:
        if name in names:
            return kind
    return Kind.GENERAL


_CANCELLING = _names("""
    logcumsumexp logsumexp igamma igammac softplus log_sigmoid log_sigmoid_forward logaddexp
    logaddexp2 elu elu_ celu selu
""")
_BY_NAME = (
    (_EXACT, Kind.EXACT),
    (_ROUNDED, Kind.ROUNDED),
    (_SUM, Kind.SUM),
    (_STEP, Kind.STEP),
    (_ORDER, Kind.ORDER),
)


def order_is_arbitrary(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether torch leaves the order of equal scores undefined."""
    name, variant = overload(target)
    if name in ("sort", "argsort") and variant == "stable":
        return not kwargs.get("stable")
    return name in _ARBITRARY


def _kind_of_cast(given: torch.Tensor, result: torch.Tensor) -> Kind:
    """Return the kind of a cast: to a narrower dtype it is a step."""
    if not given.is_floating_point() or result.is_complex():
        return Kind.EXACT
    if not result.is_floating_point():
        return Kind.STEP
    narrower = torch.finfo(result.dtype).eps > torch.finfo(given.dtype).eps
    return Kind.STEP if narrower else Kind.EXACT


def unit(dtype: torch.dtype) -> float:
    """Return the spacing of a float or complex dtype at 1."""
    return float(torch.finfo(dtype).eps)


def least(dtype: torch.dtype) -> float:
    """Return the error that is allowed next to zero: subnormal numbers may be flushed."""
    info = torch.finfo(dtype)
    return float(info.smallest_normal * info.eps if dtype == torch.float16 else info.tiny)


def is_float(value: Any) -> bool:
    """Return whether a value is a tensor of floats or complex numbers."""
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def units(target: Any, args: tuple[Any, ...], result: Any) -> tuple[float, float]:
    """Return the units of the last place that an op may change its operands and its result by.

    An op that sums up a row in 32 bits adds the error of that sum.
    """
    name, _ = overload(target)
    first = next((a for a in args if is_float(a)), None)
    if first is None:
        return 1.0, 2.0
    ratio = unit(torch.float32) / unit(narrow(first.dtype))
    if name in ("scaled_dot_product_attention", "flex_attention"):
        return 1.0 + ratio * math.sqrt(first.shape[-1]) / 4, 4.0
    if name in _RECURRENT:
        return 1.0 + ratio * math.sqrt(first.shape[-1]) / 4, 4.0 * math.sqrt(first.shape[0])
    summed = ratio * math.sqrt(_row_length(name, first, args, result) / 10)
    return (1.0 + summed if name in _CENTERED else 1.0), 2.0 + summed


_RECURRENT = _names("lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell")
_CENTERED = _names("""
    native_layer_norm layer_norm native_group_norm group_norm instance_norm batch_norm var std
    var_mean std_mean _native_batch_norm_legit
""")


def _row_length(name: str, given: torch.Tensor, args: tuple[Any, ...], result: Any) -> float:
    """Return how many elements an op adds up for an element of its result, 1 for pointwise ops."""
    made = result[0] if isinstance(result, tuple | list) and result else result
    if name in ("native_layer_norm", "layer_norm", "rms_norm"):
        return float(math.prod(args[1]))
    if name in ("native_group_norm", "group_norm"):
        groups = args[6] if name == "native_group_norm" else args[1]
        return float(given.numel() / max(1, given.shape[0] * groups))
    if name in ("instance_norm", "batch_norm", "_native_batch_norm_legit") and given.dim() > 1:
        return float(given.numel() / max(1, given.shape[1]))
    if "softmax" in name or name in ("cumprod", "logcumsumexp"):
        axis = args[1] if len(args) > 1 and isinstance(args[1], int) else -1
        return float(given.shape[axis]) if given.dim() else 1.0
    if isinstance(made, torch.Tensor) and 0 < made.numel() < given.numel():
        return float(given.numel() / made.numel())
    return 1.0


def terms(target: Any, args: tuple[Any, ...], result: torch.Tensor) -> float:
    """Return about how many terms a sum has."""
    name, _ = overload(target)
    tensors = [a for a in args if isinstance(a, torch.Tensor)]
    if "conv" in name and len(tensors) > 1:
        weight = tensors[1]
        return float(weight.numel() / max(1, weight.shape[1 if "transpose" in name else 0]))
    if name in ("addmm", "baddbmm", "addbmm", "addmv") and len(tensors) > 1:
        return float(tensors[1].shape[-1])
    if len(tensors) > 1 and name in _PRODUCTS:
        return float(tensors[0].shape[-1]) if tensors[0].dim() else 1.0
    if name == "cumsum" or not tensors:
        return float(max(tensors[0].shape, default=1)) if tensors else 1.0
    return max(1.0, float(tensors[0].numel() / max(1, result.numel())))


_PRODUCTS = _names("mm bmm linear matmul mv dot vdot inner")


def may_cancel(target: Any) -> bool:
    """Return whether a result near zero has an error of one unit of 1.

    `logcumsumexp` adds the largest element to a logarithm: of [0, -31.5], torch returns 2e-14,
    and a correct implementation 0. `igammac` is 1 minus `igamma` where that is the series.
    `softplus` is the logarithm of 1 plus an exponential, and `elu` an exponential minus 1.
    """
    return overload(target)[0] in _CANCELLING


def is_normwise(target: Any) -> bool:
    """Return whether errors of an op are relative to the largest element of a matrix.

    Factorizations and solvers are stable in this sense: a small element may be wrong altogether.
    """
    name, _ = overload(target)
    return name in _FACTORIZATIONS or (
        name.startswith(("linalg_", "_linalg_")) and name not in _ELEMENTWISE_LINALG
    )


_FACTORIZATIONS = _names("""
    cholesky cholesky_inverse cholesky_solve geqrf inverse lu_solve lu_unpack ormqr pinverse qr svd
    triangular_solve _lu_with_info
""")
_ELEMENTWISE_LINALG = _names("linalg_cross linalg_diagonal linalg_vector_norm linalg_vecdot")


def weight_error(target: Any) -> float:
    """Return the relative error of the weights of a sum that the op computes itself, in units.

    Interpolation computes weights from coordinates, which are rounded first.
    """
    name, _ = overload(target)
    return 8.0 if name.startswith(("upsample", "_upsample", "grid_sampler")) else 0.0


def rounds_terms(target: Any) -> bool:
    """Return whether a program rounds the terms of a sum to half precision before it adds them.

    An average scales the elements first, as the sum of a window may be infinite in float16;
    interpolation rounds the weights, the weighed neighbours and the result of each axis.
    """
    name, _ = overload(target)
    return name.startswith(("upsample", "_upsample", "avg_pool", "adaptive_avg", "_adaptive_avg"))


def has_negative_weights(target: Any, args: tuple[Any, ...]) -> bool:
    """Return whether an interpolation weighs some neighbours negatively."""
    name, _ = overload(target)
    if name == "grid_sampler_2d":
        return len(args) > 2 and args[2] == 2  # bicubic
    return "bicubic" in name or "lanczos" in name
