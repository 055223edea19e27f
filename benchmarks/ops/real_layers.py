"""Linear algebra and window ops at real sizes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch.nn import functional

from . import real_inputs as inputs
from .real_inputs import Call

LINEAR_ALGEBRA: dict[str, Callable[[], Call]] = {
    "inv 512": lambda: (torch.linalg.inv, (inputs.regular(512),)),
    "solve 512": lambda: (torch.linalg.solve, (inputs.regular(512), torch.randn(512, 64))),
    "det 512": lambda: (lambda x: torch.linalg.slogdet(x)[1], (inputs.regular(512),)),
    "cholesky 512": lambda: (torch.linalg.cholesky, (inputs.positive(512),)),
    "cholesky_solve 512": lambda: (
        lambda b, x: torch.cholesky_solve(b, torch.linalg.cholesky(x)),
        (torch.randn(512, 8), inputs.positive(512)),
    ),
    "qr 512": lambda: (inputs.qr, (torch.randn(512, 512),)),
    "svd 128": lambda: (inputs.svd, (torch.randn(128, 128),)),
    "svdvals 512x64": lambda: (torch.linalg.svdvals, (torch.randn(512, 64),)),
    "eigh 128": lambda: (inputs.eigh, (inputs.positive(128),)),
    "eigvalsh 256": lambda: (torch.linalg.eigvalsh, (inputs.positive(256),)),
    "eig 64": lambda: (inputs.eig, (torch.randn(64, 64),)),
    "eig 256": lambda: (inputs.eig, (torch.randn(256, 256),)),
    "eig 32": lambda: (inputs.eig, (torch.randn(32, 32),)),
    "eigvals 16": lambda: (inputs.eigvals, (torch.randn(16, 16),)),
    "eigvals 32": lambda: (inputs.eigvals, (torch.randn(32, 32),)),
    "eigvals 64 of probabilities": lambda: (inputs.eigvals, (torch.rand(64, 64).softmax(1),)),
    "eigvals 64": lambda: (inputs.eigvals, (torch.randn(64, 64),)),
    "eigvals 128": lambda: (inputs.eigvals, (torch.randn(128, 128),)),
    "eigvals 256": lambda: (inputs.eigvals, (torch.randn(256, 256),)),
    "eigvals 1,000x4x4": lambda: (inputs.eigvals, (torch.randn(1_000, 4, 4),)),
    "triangular_solve 512": lambda: (
        lambda a, b: torch.linalg.solve_triangular(a.tril(), b, upper=False),
        (inputs.regular(512), torch.randn(512, 64)),
    ),
    "pinv 128x64": lambda: (torch.linalg.pinv, (torch.randn(128, 64),)),
    "lstsq 512x64": lambda: (
        lambda a, b: torch.linalg.lstsq(a, b).solution,
        (torch.randn(512, 64), torch.randn(512, 4)),
    ),
    "matrix_exp 256": lambda: (torch.linalg.matrix_exp, (torch.randn(256, 256) / 16,)),
    "matrix_power 10 of 512": lambda: (
        lambda x: torch.linalg.matrix_power(x, 10),
        (torch.randn(512, 512) / 23,),
    ),
    "lu 512": lambda: (
        lambda x: torch.linalg.lu_factor(x)[0],
        (inputs.regular(512),),
    ),
    "matmul 1,024": lambda: (torch.matmul, (torch.randn(1_024, 1_024), torch.randn(1_024, 1_024))),
    "bmm 64x256x256": lambda: (
        torch.bmm,
        (torch.randn(64, 256, 256), torch.randn(64, 256, 256)),
    ),
    "einsum bhqd,bhkd 12x512": lambda: (
        lambda q, k: torch.einsum("bhqd,bhkd->bhqk", q, k),
        (torch.randn(1, 12, 512, 64), torch.randn(1, 12, 512, 64)),
    ),
    "kron 64x64": lambda: (torch.kron, (torch.randn(64, 64), torch.randn(32, 32))),
    "cross 1M": lambda: (torch.linalg.cross, (torch.randn(333_333, 3), torch.randn(333_333, 3))),
    "cdist 4,096x4,096": lambda: (
        torch.cdist,
        (torch.randn(4_096, 16), torch.randn(4_096, 16)),
    ),
    "cdist p=1 1,024": lambda: (
        lambda a, b: torch.cdist(a, b, p=1.0),
        (torch.randn(1_024, 32), torch.randn(1_024, 32)),
    ),
    "pdist 1,024": lambda: (functional.pdist, (torch.randn(1_024, 16),)),
    "cov 256x4,096": lambda: (torch.cov, (torch.randn(256, 4_096),)),
}

WINDOWS: dict[str, Callable[[], Call]] = {
    "conv3d 16x16x56x56": lambda: (
        torch.nn.Conv3d(16, 32, 3, padding=1),
        (torch.randn(1, 16, 16, 56, 56),),
    ),
    "conv1d 512x3,000": lambda: (
        torch.nn.Conv1d(80, 512, 3, padding=1),
        (torch.randn(1, 80, 3_000),),
    ),
    "depthwise conv2d 192x56x56": lambda: (
        torch.nn.Conv2d(192, 192, 7, padding=3, groups=192),
        (torch.randn(1, 192, 56, 56),),
    ),
    "dilated conv2d 64x65x65": lambda: (
        torch.nn.Conv2d(64, 64, 3, padding=12, dilation=12),
        (torch.randn(1, 64, 65, 65),),
    ),
    "conv_transpose1d 256x1,000": lambda: (
        torch.nn.ConvTranspose1d(256, 128, 16, 8, 4),
        (torch.randn(1, 256, 500),),
    ),
    "conv_transpose2d 64x64x64": lambda: (
        torch.nn.ConvTranspose2d(64, 32, 4, 2, 1),
        (torch.randn(1, 64, 64, 64),),
    ),
    "conv_transpose3d 16x8x28x28": lambda: (
        torch.nn.ConvTranspose3d(16, 8, 2, 2),
        (torch.randn(1, 16, 8, 28, 28),),
    ),
    "max_pool3d 16x16x56x56": lambda: (
        lambda x: functional.max_pool3d(x, 3, 2, 1),
        (torch.randn(1, 16, 16, 56, 56),),
    ),
    "max_pool2d with indices 64x56x56": lambda: (
        lambda x: functional.max_pool2d(x, 2, return_indices=True),
        (torch.randn(1, 64, 56, 56),),
    ),
    "max_unpool2d 64x56x56": lambda: (
        lambda x: functional.max_unpool2d(*functional.max_pool2d(x, 2, return_indices=True), 2),
        (torch.randn(1, 64, 56, 56),),
    ),
    "adaptive_max_pool2d 57x57 to 7x7": lambda: (
        lambda x: functional.adaptive_max_pool2d(x, 7),
        (torch.randn(1, 256, 57, 57),),
    ),
    "adaptive_avg_pool3d 15x57x57 to 4x7x7": lambda: (
        lambda x: functional.adaptive_avg_pool3d(x, (4, 7, 7)),
        (torch.randn(1, 32, 15, 57, 57),),
    ),
    "lp_pool2d 64x112x112": lambda: (
        lambda x: functional.lp_pool2d(x, 2, 3, 2),
        (torch.randn(1, 64, 112, 112),),
    ),
    "unfold 64 of 112x112": lambda: (
        lambda x: functional.unfold(x, 3, padding=1),
        (torch.randn(1, 64, 112, 112),),
    ),
    "fold 64 of 112x112": lambda: (
        lambda x: functional.fold(x, 112, 3, padding=1),
        (torch.randn(1, 64 * 9, 112 * 112),),
    ),
    "interpolate nearest-exact 16x128x128": lambda: inputs.resize("nearest-exact", 128, 128),
    "interpolate bilinear 16x128x128 by 1.7": lambda: inputs.resize(
        "bilinear", 128, 128, scale=1.7
    ),
    "interpolate bilinear antialias to half": lambda: inputs.resize(
        "bilinear", 256, 256, scale=0.5, antialias=True
    ),
    "interpolate bicubic 16x128x128": lambda: inputs.resize("bicubic", 128, 128),
    "interpolate bicubic antialias to half": lambda: inputs.resize(
        "bicubic", 256, 256, scale=0.5, antialias=True
    ),
    "interpolate trilinear 16x16x32x32": lambda: inputs.resize("trilinear", 16, 32, 32),
    "interpolate linear 16x10,000": lambda: inputs.resize("linear", 10_000),
    "interpolate area 16x256x256": lambda: inputs.resize("area", 256, 256, scale=0.5),
    "grid_sample nearest 256x256": lambda: inputs.on_grid(256, mode="nearest"),
    "grid_sample reflection 256x256": lambda: inputs.on_grid(256, padding_mode="reflection"),
    "grid_sample border bicubic 256x256": lambda: inputs.on_grid(
        256, padding_mode="border", mode="bicubic"
    ),
    "grid_sample 3D 32x32x32": lambda: (
        lambda x, g: functional.grid_sample(x, g, align_corners=False),
        (torch.randn(1, 8, 32, 32, 32), torch.rand(1, 32, 32, 32, 3) * 2 - 1),
    ),
    "affine_grid 512x512": lambda: (
        lambda t: functional.affine_grid(t, [1, 3, 512, 512], align_corners=False),
        (torch.randn(1, 2, 3),),
    ),
    "replication pad 64x112x112": lambda: (
        lambda x: functional.pad(x, (3, 3, 3, 3), mode="replicate"),
        (torch.randn(1, 64, 112, 112),),
    ),
    "circular pad 64x112x112": lambda: (
        lambda x: functional.pad(x, (3, 3, 3, 3), mode="circular"),
        (torch.randn(1, 64, 112, 112),),
    ),
    "pixel_unshuffle 16x224x224": lambda: (
        lambda x: functional.pixel_unshuffle(x, 2),
        (torch.randn(1, 16, 224, 224),),
    ),
    "instance_norm 64x112x112": lambda: (
        functional.instance_norm,
        (torch.randn(1, 64, 112, 112),),
    ),
    "depthwise convolution, stride 2, 96x112x112": lambda: (
        lambda x, w: functional.conv2d(x, w, None, 2, 1, 1, 96),
        (torch.randn(1, 96, 112, 112), torch.randn(96, 1, 3, 3)),
    ),
    "local_response_norm 64x56x56": lambda: (
        lambda x: functional.local_response_norm(x, 5),
        (torch.randn(1, 64, 56, 56),),
    ),
    "rms_norm 512x4,096": lambda: (torch.nn.RMSNorm(4_096), (torch.randn(1, 512, 4_096),)),
}
