"""Programs that were decomposed with another table than the converter's."""

from __future__ import annotations

import pytest
import runtime
import torch

from coreai_torch import TorchConverter
from coreai_torch.errors import ConversionError
from coreai_torch.lowering.inline import trace

OPEN = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)


class Spectrum(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


def test_sizes_stay_open_where_an_op_is_taken_apart_in_its_place():
    """The spectrum of [4, 7] came out as that of [3, 7]: tracing it fixed the sizes."""
    exported = torch.export.export(Spectrum(), (torch.ones(3, 7),), dynamic_shapes=OPEN)
    program = TorchConverter().add_exported_program(exported.run_decompositions()).to_coreai()
    for sizes in ((3, 7), (4, 7), (5, 8)):
        x = torch.rand(sizes)
        (got,) = runtime.run(program, {"x": x}).values()
        torch.testing.assert_close(got, Spectrum()(x), rtol=1e-5, atol=1e-5)


def test_sizes_that_would_be_fixed_are_told():
    exported = torch.export.export(Spectrum(), (torch.ones(3, 7),), dynamic_shapes=OPEN)
    node = next(n for n in exported.graph.nodes if n.op == "call_function")
    with pytest.raises(ConversionError, match="fixes sizes that may vary") as told:
        trace(lambda x, *_: x.reshape(int(x.shape[0]), -1), node, {})
    assert "get_decomp_table" in str(told.value)
