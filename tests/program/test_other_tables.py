"""Programs that were decomposed with another table than the converter's."""

from __future__ import annotations

import pytest
import runtime
import torch

from coreai_torch import TorchConverter
from coreai_torch.errors import ConversionError
from coreai_torch.fx.tracing import trace

DYNAMIC = ({0: torch.export.Dim.AUTO, 1: torch.export.Dim.AUTO},)


class Spectrum(torch.nn.Module):
    def forward(self, x):
        return torch.fft.rfft(x).abs()


def test_inlined_decomposition_keeps_sizes_dynamic():
    """Tracing once fixed the sizes: the spectrum of [4, 7] was that of [3, 7]."""
    exported = torch.export.export(Spectrum(), (torch.ones(3, 7),), dynamic_shapes=DYNAMIC)
    program = TorchConverter().add_exported_program(exported.run_decompositions()).to_coreai()
    for sizes in ((3, 7), (4, 7), (5, 8)):
        x = torch.rand(sizes)
        (got,) = runtime.run(program, {"x": x}).values()
        torch.testing.assert_close(got, Spectrum()(x), rtol=1e-5, atol=1e-5)


def test_decomposition_that_fixes_sizes_is_rejected():
    exported = torch.export.export(Spectrum(), (torch.ones(3, 7),), dynamic_shapes=DYNAMIC)
    node = next(n for n in exported.graph.nodes if n.op == "call_function")
    with pytest.raises(ConversionError, match="fixes dynamic sizes") as raised:
        trace(lambda x, *_: x.reshape(int(x.shape[0]), -1), node, {})
    assert "get_decomp_table" in str(raised.value)
