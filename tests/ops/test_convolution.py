"""Transposed convolutions over a grid of windows, at sizes other than the exported ones."""

from __future__ import annotations

import itertools

import pytest
import runtime
import torch
from case_runner import compare

import coreai_torch

_BY_RANK = {
    1: torch.nn.functional.conv_transpose1d,
    2: torch.nn.functional.conv_transpose2d,
    3: torch.nn.functional.conv_transpose3d,
}
_EXPORTED, _OTHER = (4, 5, 6), (6, 4, 3)  # spatial sizes


def _windows(spatial):
    """Yield kernel, stride, padding, dilation and output padding: all small ones of torch."""
    for k, s, p, d in itertools.product((1, 2, 3), (1, 2, 3), (0, 1, 2), (1, 2)):
        for op in range(max(s, d)):
            smallest = (min(_EXPORTED + _OTHER) - 1) * s - 2 * p + d * (k - 1) + op + 1
            if smallest > 0 and (spatial < 3 or (k + s + p + d + op) % 2 == 0):
                yield k, s, p, d, op


class _Grid(torch.nn.Module):
    """One convolution for each window, all on the same input."""

    def __init__(self, spatial, groups):
        super().__init__()
        self.convolve, self.groups, self.windows = _BY_RANK[spatial], groups, [*_windows(spatial)]
        generator = torch.Generator().manual_seed(spatial)
        for k in (1, 2, 3):
            kernel = [k, 3, k][:spatial]  # differs between the axes
            self.register_buffer(f"w{k}", torch.randn(4, 2, *kernel, generator=generator))

    def forward(self, x):
        return [
            self.convolve(
                x,
                getattr(self, f"w{k}"),
                stride=s,
                padding=p,
                output_padding=op,
                groups=self.groups,
                dilation=d,
            )
            for k, s, p, d, op in self.windows
        ]


@pytest.mark.parametrize(
    ("groups", "sizes"), [(1, "static"), (1, "dynamic"), (2, "dynamic"), (4, "dynamic")]
)
@pytest.mark.parametrize("spatial", [1, 2, 3])
def test_transposed_grid(spatial, groups, sizes):
    model, auto = _Grid(spatial, groups), torch.export.Dim.AUTO
    x = torch.randn(2, 4, *_EXPORTED[:spatial])
    dynamic = {0: auto, **{i + 2: auto for i in range(spatial)}} if sizes == "dynamic" else {}
    exported = torch.export.export(model, (x,), dynamic_shapes=(dynamic,))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    feeds = [x] if sizes == "static" else [x, torch.randn(3, 4, *_OTHER[:spatial])]
    for feed in feeds:
        got = runtime.run(program, {"x": feed})
        for (_, found), want in zip(got.items(), model(feed), strict=True):
            compare(found, want)
