"""Grouped matrix products of `transformers` experts, with rows outside all groups."""

from __future__ import annotations

import pytest
import runtime
import torch
from lazy_import import lazy_import

from coreai_torch import TorchConverter, get_decomp_table

moe = lazy_import("transformers.integrations.moe")  # defines the op


class Grouped(torch.nn.Module):
    def forward(self, rows, matrices, ends):
        return torch.ops.transformers.grouped_mm_fallback(rows, matrices, ends)


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("ends", [[2, 2, 5], [0, 1, 2], [0, 0, 0], [7, 7, 7]], ids=str)
@pytest.mark.parametrize("count", [7, 2])
def test_rows_are_multiplied_by_the_matrix_of_their_group(count, ends, dynamic):
    torch.manual_seed(0)
    ends = [min(end, count) for end in ends]
    feeds = (torch.randn(count, 4), torch.randn(3, 4, 5), torch.tensor(ends, dtype=torch.int32))
    shapes = ({0: torch.export.Dim.DYNAMIC}, None, None) if dynamic else None
    exported = torch.export.export(Grouped(), feeds, dynamic_shapes=shapes)
    exported = exported.run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    (got,) = runtime.run(
        program, dict(zip(("rows", "matrices", "ends"), feeds, strict=True))
    ).values()
    torch.testing.assert_close(got, Grouped()(*feeds), rtol=1e-5, atol=1e-5)
