"""The runtime drops one of two equal scans over a dynamic size (coreai-core 1.0.0b3)."""

from __future__ import annotations

import torch
from runtime import run
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table


class _Twice(nn.Module):
    """Two equal sums that differ only in their users."""

    def forward(self, x):
        return x.cumsum(0) + x, x.cumsum(0) * x, x.cumsum(1)


def test_equal_cumulative_sums_run_at_any_length():
    x = torch.arange(12.0).reshape(3, 4)
    length = torch.export.Dim("length", max=64)
    exported = torch.export.export(_Twice(), (x,), dynamic_shapes=({0: length},))
    exported = exported.run_decompositions(get_decomp_table())
    converter = TorchConverter().add_exported_program(exported, output_names=["a", "b", "c"])
    program = converter.to_coreai()
    for optimized in (False, True):
        if optimized:
            program.optimize()
        for given in (x, torch.arange(20.0).reshape(5, 4)):
            got = run(program, {"x": given})
            assert all(
                torch.equal(got[name], value)
                for name, value in zip("abc", _Twice()(given), strict=True)
            )
