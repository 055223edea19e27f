"""`optimize` moves reshapes around broadcasting ops; dynamic sizes must stay right."""

from __future__ import annotations

import pytest
import runtime
import torch

import coreai_torch

AUTO = torch.export.Dim.AUTO


def _row_and_column(x, y):
    return x.view(1, -1) + y.view(-1, 1)


def _led_by_one(x, y):
    return x.view(1, *x.shape) * y.view(y.shape[0], 1, 1)


def _between(x, y):
    return x.view(x.shape[0], 1) - y.view(1, 1, -1)


@pytest.mark.parametrize(
    ("function", "shapes"),
    [(_row_and_column, [(5,), (4,)]), (_led_by_one, [(5, 3), (4,)]), (_between, [(5,), (4,)])],
)
def test_reshape_that_adds_axes_is_not_moved_after_its_user(function, shapes):
    class Model(torch.nn.Module):
        def forward(self, x, y):
            return function(x, y)

    feeds = {name: torch.randn(shape) for name, shape in zip("xy", shapes, strict=True)}
    sizes = tuple(dict.fromkeys(range(t.dim()), AUTO) for t in feeds.values())
    exported = torch.export.export(Model(), tuple(feeds.values()), dynamic_shapes=sizes)
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    (got,) = runtime.run(program, feeds).values()
    torch.testing.assert_close(got, function(**feeds))
