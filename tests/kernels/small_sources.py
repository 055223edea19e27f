"""Run small Metal sources."""

import torch

from coreai_torch import MetalParameter, TorchMetalKernel

ID = MetalParameter("id", "uint", "thread_position_in_grid")


def ran(src, x, *, params=(ID,), grid=None, group=(64, 1, 1), shape=None, like=None, **how):
    """Run a source with one input `x` and one result `out`."""
    like = x if like is None else like
    shape = list(shape or like.shape)

    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.zeros(shape, dtype=like.dtype)

    options = {k: how.pop(k) for k in ("helper_src", "template_dtypes") if k in how}
    kernel = TorchMetalKernel(
        "small_source", ["x"], ["out"], src, reference, list(params), **options
    )
    return kernel.emulate(
        x,
        threads_per_grid=grid or (x.shape[0], 1, 1),
        threads_per_thread_group=group,
        result_shapes=[shape],
        **how,
    )
