"""Calls of lowerings that are linear in their inputs and outputs: elements and their places.

Each call contains many ops, since one op with a table of n x n shows in the sum: at the larger
size, that has 67 million elements.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .family import Call, every, linear, of

aten = torch.ops.aten

_UNARY = """abs neg sign signbit floor ceil trunc round acos acosh asin asinh atan atanh cos cosh
    erf exp log rsqrt sigmoid sin sinh sqrt tan tanh reciprocal exp2 expm1 log1p log2 log10 isnan
    isinf isfinite isposinf isneginf logical_not nan_to_num relu hardtanh leaky_relu elu celu gelu
    silu softshrink mish softplus hardswish hardsigmoid angle clone detach alias lift_fresh_copy
    resolve_conj resolve_neg"""
_BINARY = """add sub mul div remainder fmod pow eq ne gt lt ge le logical_and logical_or logical_xor
    maximum minimum fmax fmin atan2 hypot copysign heaviside xlogy logaddexp logaddexp2 nextafter
    isclose ldexp"""
_INTEGERS = """bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift __lshift__
    __rshift__ gcd lcm"""
_BESSEL = """i0 special_i0e special_i1 special_i1e special_bessel_j0 special_bessel_j1
    special_bessel_y0 special_bessel_y1 special_spherical_bessel_j0 special_modified_bessel_i0
    special_modified_bessel_i1 special_modified_bessel_k0 special_modified_bessel_k1
    special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 special_airy_ai"""
_GAMMA = "erfc special_erfcx erfinv special_ndtri lgamma digamma"
_POLYNOMIALS = """special_chebyshev_polynomial_t special_chebyshev_polynomial_u
    special_chebyshev_polynomial_v special_chebyshev_polynomial_w special_hermite_polynomial_h
    special_hermite_polynomial_he special_laguerre_polynomial_l special_legendre_polynomial_p
    special_shifted_chebyshev_polynomial_t special_shifted_chebyshev_polynomial_u
    special_shifted_chebyshev_polynomial_v special_shifted_chebyshev_polynomial_w"""


def _pair(n: int) -> tuple[Tensor, Tensor]:
    return torch.rand(n) + 0.5, torch.rand(n) + 0.5


def _indices(n: int) -> Tensor:
    return torch.randperm(n)


def _ternary(x: Tensor, y: Tensor) -> list[Tensor]:
    return [
        torch.addcmul(x, x, y),
        torch.addcdiv(x, x, y),
        torch.lerp(x, y, 0.3),
        torch.where(x > y, x, y),
        x.clamp(y),
        *torch.frexp(x),
        aten.rrelu_with_noise_functional(x, y, 0.1, 0.3, False)[0],
    ]


def _complex(x: Tensor, y: Tensor) -> list[Tensor]:
    z = torch.polar(x, y) * torch.complex(x, y)
    parts = [aten._conj(z) / z, aten._conj_physical(z).exp(), aten._neg_view(z) * z, z.sqrt()]
    pairs = torch.view_as_real(torch.stack(parts))
    return [pairs, torch.view_as_complex(pairs * 2.0).abs(), aten.view_as_complex_copy(pairs)]


def _casts(x: Tensor) -> list[Tensor]:
    half = x.half()
    return [
        half,
        x.to(torch.int8).view(torch.uint8),
        aten.view_copy(x.to(torch.int8), torch.uint8),
        torch.ops.prims.convert_element_type(x, torch.int32),
        x.clone().copy_(half),
        aten.copy(x, half),
    ]


def _polynomials(x: Tensor) -> list[Tensor]:
    return [getattr(aten, name)(x, 5) for name in _POLYNOMIALS.split()]


POINTWISE = (
    linear(_UNARY, of(every(_UNARY)), like="log_sigmoid_forward native_dropout dequantize"),
    linear(_BINARY, lambda n: (every(_BINARY), _pair(n))),
    linear(
        "addcmul addcdiv lerp where clamp frexp rrelu_with_noise_functional",
        lambda n: (_ternary, _pair(n)),
    ),
    linear(
        f"{_INTEGERS} bitwise_not",
        lambda n: (
            lambda x, y: [*every(_INTEGERS)(x, y), x.bitwise_not()],
            (torch.arange(n, dtype=torch.int32) % 97 + 1, torch.arange(n, dtype=torch.int32) % 7),
        ),
    ),
    linear(
        "complex polar _conj _conj_physical view_as_real view_as_complex view_as_complex_copy",
        lambda n: (_complex, _pair(n)),
        like="view_as_real_copy _neg_view",
    ),
    linear(
        "_to_copy prims::convert_element_type copy view view_copy",
        of(_casts),
        like="lift_fresh",
    ),
    linear(_BESSEL, lambda n: (every(_BESSEL), _pair(n)[:1]), sizes="static"),
    linear(
        f"{_GAMMA} igamma igammac special_zeta polygamma",
        lambda n: (
            lambda x, y: [
                *every(_GAMMA)(x),
                *every("igamma igammac")(x, y),
                torch.special.zeta(x + 1, y),
                torch.polygamma(2, x),
            ],
            _pair(n),
        ),
        sizes="static",
    ),
    linear(_POLYNOMIALS, of(_polynomials), sizes="static"),
)


_REDUCTIONS = """sum mean prod amax amin max min argmax argmin any all var std logsumexp"""


def _reductions(x: Tensor) -> list[Tensor]:
    return [
        *every(_REDUCTIONS.removesuffix("logsumexp"))(x),
        *(aten.max.dim(x, 1) + aten.min.dim(x, 1)),
        *every("sum mean logsumexp amax amin argmax argmin")(x, 1),
        aten.prod.dim_int(x, 1),
        aten.any.dim(x, 1),
        aten.all.dims(x, [0, 1]),
        *torch.var_mean(x, 1),
        *torch.std_mean(x, 1),
        torch.linalg.vector_norm(x, 3, 1),
        torch.dist(x, x * 2),
        x.softmax(1),
        x.log_softmax(1),
    ]


def _read(x: Tensor, i: Tensor) -> list[Tensor]:
    return [
        x[:, 3:],
        aten.slice_copy(x, 1, 2),
        aten.narrow_copy(x, 1, 3, 5),
        aten.select(x, 1, 2),
        aten.select_copy(x, 1, 2),
        x.index_select(1, i),
        x.gather(1, i.expand(4, -1)),
        x[:, i],
        x[torch.arange(4)[:, None], i[:4]],
        x.take(i),
        x.masked_select(x > 0),
        (x > 0).nonzero(),
        torch.nonzero_static(x > 0, size=7),
    ]


def _write(x: Tensor, i: Tensor, y: Tensor) -> list[Tensor]:
    return [
        aten.slice_scatter(x, y[:, :5], 1, 3, 8),
        aten.select_scatter(x, y[:, 0], 1, 3),
        x.index_copy(1, i, y),
        x.index_put((torch.arange(4)[:, None], i), y),
        x.index_put((torch.arange(4)[:, None], i), y, accumulate=True),
        aten._unsafe_index_put(x, [None, i], y),
        x.put(i, y[0]),
        x.index_add(1, i, y),
        x.index_fill(1, i, 2.0),
    ]


def _scatter(x: Tensor, i: Tensor, y: Tensor) -> list[Tensor]:
    places = i.expand(4, -1)
    return [
        x.scatter(1, places, y),
        x.scatter(1, places, 2.0),
        x.scatter(1, places, y, reduce="add"),
        x.scatter_add(1, places, y),
        *(x.scatter_reduce(1, places, y, r) for r in ("sum", "prod", "amax", "mean")),
        x.index_reduce(1, i, y, "amin"),
    ]


def _places(n: int) -> tuple[Tensor, ...]:
    return torch.randn(4, n), _indices(n), torch.randn(4, n)


def _bags(n: int) -> Call:
    return (
        lambda w, i: [
            torch.nn.functional.embedding(i, w),
            aten.embedding_renorm(w, i, 1.0, 2.0),
        ],
        (torch.randn(n, 4), _indices(n)),
    )


def _bins(x: Tensor) -> list[Tensor]:
    return [
        torch.histc(x, 16, -1, 1),
        torch.histogram(x, 16, range=(-1.0, 1.0))[0],
        torch.histogram(x, torch.tensor([-1.0, 0.0, 0.5, 1.0]))[0],
    ]


def _cumulative(x: Tensor) -> list[Tensor]:
    return [x.cumprod(0), *x.cummax(0), *x.cummin(0)]


INDEXING = (
    linear(
        f"{_REDUCTIONS} var_mean std_mean linalg_vector_norm dist _softmax _log_softmax",
        of(_reductions, 4),
    ),
    linear(
        """slice slice_copy narrow_copy select select_copy index_select gather index take
        masked_select nonzero nonzero_static""",
        lambda n: (_read, _places(n)[:2]),
    ),
    linear(
        """slice_scatter select_scatter index_add index_copy index_put _unsafe_index_put put""",
        lambda n: (_write, _places(n)),
        like="_index_put_impl",
    ),
    linear(
        "scatter scatter_add scatter_reduce index_reduce",
        lambda n: (_scatter, _places(n)),
    ),
    linear("embedding embedding_renorm", _bags),
    linear(
        "histc histogram",
        of(_bins),
        like="_histogramdd_bin_edges _histogramdd_from_bin_cts _histogramdd_from_bin_tensors",
        sizes="static",
    ),
    linear(
        "bincount unique_consecutive",
        lambda n: (lambda x: [x.bincount(), x.unique_consecutive()], (_indices(n).sort()[0],)),
    ),
    linear("cumprod cummax cummin", of(_cumulative)),
    linear(
        "roll masked_scatter repeat_interleave",
        lambda n: (
            lambda x, i: [
                x.roll(3),
                x.masked_scatter(x > 0, x * 2),
                torch.repeat_interleave(x, i % 3),
                torch.nn.functional.one_hot(i % 9, 9),
            ],
            (torch.randn(n), _indices(n)),
        ),
    ),
)
