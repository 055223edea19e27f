"""Calls of lowerings that are linear in their inputs and outputs: shapes, layers, losses."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.ops import vision_ops

from .family import Call, Family, linear, of

aten = torch.ops.aten


def _joins(x: Tensor) -> list[Tensor]:
    half = x.shape[1] // 2
    return [
        torch.cat([x, x * 2], 1),
        *aten.split_with_sizes(x * 3, [1, 3]),
        *aten.split_with_sizes_copy(x * 4, [1, 3]),
        *aten.unsafe_split_with_sizes(x * 5, [1, 3]),
        *aten.split_copy(x, 2),
        *aten.unbind_copy(x),
        x.repeat(1, 3),
        x[:, :half],
    ]


def _moves(x: Tensor) -> list[Tensor]:
    return [
        x.view(2, 2, -1) * 2,
        aten.view_copy(x, [2, 2, -1]),
        aten._unsafe_view(x, [2, 2, -1]),
        x.permute(1, 0) + 1,
        aten.permute_copy(x, [1, 0]),
        x.unsqueeze(0).squeeze(0) * 3,
        aten.squeeze(x[None]),
        x[:, None].expand(4, 2, -1) * 1,
        aten.expand_copy(x[:, None], [4, 2, -1]),
        x.flip(1),
        functional.pixel_shuffle(x.reshape(1, 4, 1, -1), 2),
    ]


def _strided(x: Tensor) -> list[Tensor]:
    n = x.shape[0]
    return [
        x.as_strided([n // 2 - 1, 3], [2, 1], 1),
        aten.as_strided_copy(x, [n // 2], [2]),
        aten.as_strided_scatter(x, x[: n // 2] * 2, [n // 2], [2]),
        aten.resize(x, [n // 2]),
    ]


def _windows(x: Tensor) -> list[Tensor]:
    return [
        x.unfold(1, 4, 2) * 1,
        functional.unfold(x[None, :, None], (1, 3)),
        x.view(4, -1, 8).diagonal(0, 1, 2) * 1,
        aten.diagonal_scatter(x.view(4, -1, 8), x.view(4, -1, 8)[:, 0, :8], 0, 1, 2),
    ]


def _created(x: Tensor) -> list[Tensor]:
    n = x.shape[0]
    return [
        x + torch.full((n,), 2.0),
        x + torch.full_like(x, 3.0),
        x + torch.arange(n),
        x * torch.tensor(2.0),
        torch.zeros_like(x).new_empty_strided([n], [1]).copy_(x),
        torch.empty_permuted([n, 2], [1, 0]).copy_(x[:, None]),
        aten.empty_strided([n], [1]).copy_(x),
        torch.empty(n).copy_(x),
    ]


def _spaced(x: Tensor) -> list[Tensor]:
    n = x.shape[0]
    return [
        x + torch.linspace(0, 1, n),
        x + torch.logspace(0, 1, n),
        x + torch.linspace(x[0], x[1], n),
        x + aten.logspace.Tensor_Scalar(x[0], 1.0, n),
    ]


def _padded(x: Tensor) -> list[Tensor]:
    return [
        functional.pad(x, (2, 3)),
        *(functional.pad(x, (2, 3), mode=m) for m in ("reflect", "replicate", "circular")),
        functional.pad(x[:, :, None], (2, 3, 0, 0), mode="reflect"),
        functional.pad(x[:, :, None], (2, 3, 1, 1), mode="replicate"),
        functional.pad(x[:, :, None, None], (2, 3, 0, 0, 0, 0), mode="reflect"),
        functional.pad(x[:, :, None, None], (2, 3, 1, 1, 0, 0), mode="replicate"),
    ]


SHAPES = (
    linear(
        """cat split_with_sizes split_with_sizes_copy unsafe_split_with_sizes split_copy unbind_copy
        repeat""",
        of(_joins, 4),
    ),
    linear(
        """view view_copy _unsafe_view permute permute_copy unsqueeze squeeze expand expand_copy
        flip pixel_shuffle""",
        of(_moves, 4),
    ),
    linear("as_strided as_strided_copy as_strided_scatter resize", of(_strided), sizes="static"),
    linear("unfold im2col diagonal diagonal_scatter", of(_windows, 4)),
    linear(
        "full full_like arange new_empty_strided empty_permuted empty_strided empty",
        of(_created),
        like="scalar_tensor",
    ),
    linear("linspace logspace", of(_spaced), sizes="static"),
    linear(
        """constant_pad_nd reflection_pad1d reflection_pad2d reflection_pad3d replication_pad1d
        replication_pad2d replication_pad3d _pad_circular""",
        of(_padded, 2, 4),
    ),
    linear("block_diag", lambda n: (torch.block_diag, (torch.randn(2, n), torch.randn(1, n)))),
)


class _Convolutions(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.plain = torch.nn.Conv1d(4, 8, 3, padding=1)
        self.grouped = torch.nn.Conv1d(4, 4, 5, stride=2, dilation=2, groups=4)
        self.transposed = torch.nn.ConvTranspose1d(4, 4, 4, 2)
        self.plane = torch.nn.Conv2d(4, 4, (1, 3), padding=1)
        self.space = torch.nn.Conv3d(4, 4, (1, 1, 3), padding=1)

    def forward(self, x: Tensor) -> list[Tensor]:
        return [
            self.plain(x),
            self.grouped(x),
            self.transposed(x),
            self.plane(x[:, :, None]),
            self.space(x[:, :, None, None]),
        ]


def _pooled(x: Tensor) -> list[Any]:
    plane, space = x[:, :, None], x[:, :, None, None]
    return [
        functional.max_pool2d(plane, (1, 3), 2),
        functional.max_pool2d(plane, (1, 4), return_indices=True),
        functional.max_pool3d(space, (1, 1, 3), 2),
        functional.max_pool3d(space, (1, 1, 3), 2, return_indices=True),
        functional.avg_pool1d(x, 4, 2),
        functional.avg_pool2d(plane, (1, 3), padding=(0, 1)),
        functional.avg_pool3d(space, (1, 1, 3)),
    ]


def _adaptive(x: Tensor) -> list[Any]:
    n = x.shape[2]
    plane, space = x[:, :, None], x[:, :, None, None]
    return [
        functional.adaptive_avg_pool1d(x, n // 3),
        functional.adaptive_avg_pool2d(plane, (1, n // 3)),
        functional.adaptive_avg_pool3d(space, (1, 1, n // 3)),
        functional.adaptive_max_pool2d(plane, (1, n // 3)),
        functional.adaptive_max_pool3d(space, (1, 1, n // 3)),
        functional.adaptive_max_pool2d(plane, (1, 7), return_indices=True),
        functional.adaptive_avg_pool1d(x, 7),
    ]


def _fractional(n: int) -> Call:
    def run(x: Tensor, places: Tensor) -> list[Any]:
        plane = x[:, :, None].expand(1, 4, 4, n)
        space = plane[:, :, None].expand(1, 4, 4, 4, n)
        return [
            *aten.fractional_max_pool2d(plane, [2, 2], [2, n // 3], places[:, :, :2]),
            *aten.fractional_max_pool3d(space, [2, 2, 2], [2, 2, n // 3], places),
        ]

    return run, (torch.randn(1, 4, n), torch.rand(1, 4, 3))


def _resized(x: Tensor) -> list[Tensor]:
    plane, space = x[:, :, None], x[:, :, None, None]

    def resize(x: Tensor, factor: float, mode: str, **options: Any) -> Tensor:
        factors = (*(1.0,) * (x.dim() - 3), factor)
        return functional.interpolate(x, scale_factor=factors, mode=mode, **options)

    return [
        *(
            resize(y, f, m)
            for y in (x, plane, space)
            for m in ("nearest", "nearest-exact")
            for f in (2.0, 1.7)
        ),
        *(resize(x, f, "linear") for f in (2.0, 1.7, 0.4)),
        resize(plane, 1.7, "bilinear"),
        resize(space, 1.7, "trilinear"),
        resize(plane, 1.7, "bicubic"),
    ]


def _antialiased(x: Tensor) -> list[Tensor]:
    n = x.shape[3]
    return [
        functional.interpolate(x, size=(2, n // 3), mode=mode, antialias=True)
        for mode in ("bilinear", "bicubic", "lanczos")
    ]


class _Norms(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.batch = torch.nn.BatchNorm1d(4)
        self.own = torch.nn.BatchNorm1d(4, track_running_stats=False)
        self.instance = torch.nn.InstanceNorm1d(4)
        self.group = torch.nn.GroupNorm(2, 4)

    def forward(self, x: Tensor) -> list[Tensor]:
        rows = x.permute(2, 0, 1)
        return [
            self.batch(x),
            self.own(x),
            self.instance(x),
            self.group(x),
            functional.layer_norm(rows, (4,)),
            functional.rms_norm(rows, (4,)),
        ]


def _products(x: Tensor, w: Tensor, y: Tensor) -> list[Tensor]:
    return [
        x @ w,
        aten.mm(x, w),
        aten.mv(x, w[0]),
        functional.linear(x, w, w[0]),
        aten.addmm(w[0], x, w),
        aten.addmv(x[:, 0], x, w[0]),
        aten.bmm(x[None], w[None]),
        aten.baddbmm(w[:1][None], x[None], w[None]),
        aten.addbmm(y, y[None], w[None]),
        aten.addr(x, x[:, 0], w[0]),
        functional.bilinear(x, y, w[None], w[0, :1]),
    ]


def _integer_product(n: int) -> Call:
    return torch._int_mm, (
        torch.randint(-9, 9, (n, 16), dtype=torch.int8),
        torch.randint(-9, 9, (16, 8), dtype=torch.int8),
    )


LAYERS = (
    linear(
        "convolution",
        lambda n: (_Convolutions(), (torch.randn(1, 4, n),)),
        like="_convolution convolution_backward",
    ),
    linear(
        "conv_tbc",
        lambda n: (
            lambda x, w, b: aten.conv_tbc(x, w, b, 1),
            (torch.randn(n, 1, 4), torch.randn(3, 4, 2), torch.randn(2)),
        ),
        sizes="static",
    ),
    linear(
        """max_pool2d_with_indices max_pool3d_with_indices max_pool2d max_pool3d avg_pool1d
        avg_pool2d avg_pool3d""",
        of(_pooled, 1, 4),
        like="avg_pool2d_backward max_pool2d_with_indices_backward",
    ),
    linear(
        """adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d _adaptive_avg_pool2d
        _adaptive_avg_pool3d adaptive_max_pool2d adaptive_max_pool3d""",
        of(_adaptive, 1, 4),
        like="_adaptive_avg_pool2d_backward",
        sizes="dynamic",
    ),
    linear("fractional_max_pool2d fractional_max_pool3d", _fractional, sizes="static"),
    linear(
        """upsample_nearest1d upsample_nearest2d upsample_nearest3d _upsample_nearest_exact1d
        _upsample_nearest_exact2d _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d
        upsample_trilinear3d upsample_bicubic2d""",
        of(_resized, 1, 4),
        like="upsample_nearest2d_backward",
    ),
    linear(
        "_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa",
        of(_antialiased, 1, 4, 2),
        sizes="dynamic",
    ),
    linear(
        """_native_batch_norm_legit_no_training _native_batch_norm_legit instance_norm
        native_layer_norm native_group_norm rms_norm""",
        lambda n: (_Norms(), (torch.randn(2, 4, n),)),
        like="_native_batch_norm_legit_functional native_batch_norm",
    ),
    linear(
        "matmul mm mv linear addmm addmv bmm baddbmm addbmm addr bilinear",
        lambda n: (_products, (torch.randn(n, 8), torch.randn(8, 8), torch.randn(n, 8))),
        like="_trilinear _scaled_mm",
    ),
    linear("_int_mm", _integer_product),
)


def _losses(x: Tensor, y: Tensor, i: Tensor) -> list[Tensor]:
    return [
        functional.cross_entropy(x, i),
        functional.nll_loss(x.log_softmax(1), i),
        functional.mse_loss(x, y),
        functional.l1_loss(x, y),
        functional.huber_loss(x, y),
        functional.kl_div(x.log_softmax(1), y.softmax(1), reduction="sum"),
        functional.binary_cross_entropy_with_logits(x, y.sigmoid()),
        functional.multi_margin_loss(x, i),
        functional.soft_margin_loss(x, y.sign()),
        functional.triplet_margin_loss(x, y, x + y),
        functional.gaussian_nll_loss(x, y, y.exp()),
        functional.cosine_embedding_loss(x, y, i * 2 - 1.0),
        functional.poisson_nll_loss(x, y),
    ]


def _cross_entropy(x: Tensor, w: Tensor, i: Tensor) -> Tensor:
    return functional.linear_cross_entropy(x, w, i)


def _sampled(x: Tensor, grid: Tensor) -> list[Tensor]:
    return [
        aten.grid_sampler_2d(x, grid, 0, 0, False),
        aten.grid_sampler_2d(x, grid, 1, 2, True),
        aten.grid_sampler_3d(x[:, :, None], functional.pad(grid, (0, 1))[:, None], 0, 0, False),
    ]


def _grid(n: int) -> Call:
    return (
        lambda x: functional.affine_grid(x, [1, 4, 8, n], align_corners=False),
        (torch.randn(1, 2, 3),),
    )


def _regions(n: int) -> Call:
    return vision_ops.pool, (torch.randn(1, 4, 32, 32), vision_ops.regions(n, 128))


def _deformed(n: int) -> Call:
    return vision_ops.deformed, (
        torch.randn(1, 4, 8, n),
        torch.randn(4, 4, 3, 3),
        torch.randn(1, 18, 8, n),
        torch.rand(1, 9, 8, n),
        torch.randn(4),
    )


def _cond(n: int) -> Call:
    def run(x: Tensor) -> Any:
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x.cos(), (x,))

    return run, (torch.randn(n),)


def _cross(x: Tensor, y: Tensor) -> Tensor:
    return torch.linalg.cross(x, y)


def _batched(x: Tensor) -> list[Tensor]:
    """Factor many small matrices."""
    positive = x @ x.mT + torch.eye(4)
    return [torch.linalg.inv(positive), torch.linalg.cholesky(positive), torch.linalg.matrix_exp(x)]


def _spectrum(x: Tensor) -> Tensor:
    return torch.stft(x, 64, 16, window=torch.hann_window(64), return_complex=True)


_MATRIX = "static sizes that are no whole multiples: a product with a constant matrix"

RESIZED = (
    Family(
        "uneven adaptive averages from n to n / 3",
        "n^2",
        of(_adaptive, 1, 4),
        n=128,
        constants="n^2",
        memory="n^2",
        reason=_MATRIX,
        lowers="adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d",
    ),
    Family(
        "antialiased resizing from n to n / 3",
        "n^2",
        of(_antialiased, 1, 4, 2),
        n=128,
        constants="n^2",
        memory="n^2",
        reason=_MATRIX,
        lowers="_upsample_bilinear2d_aa _upsample_bicubic2d_aa _upsample_lanczos2d_aa",
    ),
)

LOSSES = (
    linear(
        "cross_entropy_loss mse_loss multi_margin_loss",
        lambda n: (_losses, (torch.randn(n, 4), torch.randn(n, 4), torch.arange(n) % 2)),
    ),
    linear(
        "cross_entropy_loss linear",
        lambda n: (_cross_entropy, (torch.randn(n, 8), torch.randn(9, 8), torch.arange(n) % 9)),
        like="""torch_nn::_linear_cross_entropy_batch_chunked
        torch_nn::_linear_cross_entropy_batch_chunked_no_reduction""",
    ),
    linear(
        "grid_sampler_2d grid_sampler_3d",
        lambda n: (_sampled, (torch.randn(1, 4, 8, n), torch.rand(1, 8, n, 2) * 2 - 1)),
        n=128,
    ),
    linear("affine_grid_generator", _grid, sizes="static"),
    linear("torchvision::roi_align", _regions, n=64, like="torchvision::ps_roi_align"),
    linear("torchvision::deform_conv2d", _deformed, n=32),
    linear("higher_order::cond", _cond),
    linear("linalg_cross", lambda n: (_cross, (torch.randn(n, 3), torch.randn(n, 3)))),
    linear(
        "linalg_inv linalg_cholesky linalg_matrix_exp",
        lambda n: (_batched, (torch.randn(n, 4, 4),)),
    ),
    linear("stft", of(_spectrum, 1)),
    linear("_fft_r2c", lambda n: (torch.fft.rfft, (torch.randn(n, 48),))),
)
