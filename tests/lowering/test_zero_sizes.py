"""The assumption about dynamic sizes that a lowering builds under."""

import pytest
import torch

import coreai_torch
from coreai_torch.ir import dialect as cai
from coreai_torch.ir.build import Build
from coreai_torch.ir.zero_size import NEVER, POSSIBLE

AUTO = torch.export.Dim.AUTO


class Sine(torch.nn.Module):
    def forward(self, x, y):
        return x.sin() + y


def converted(lower, dynamic):
    """Convert a sine that is lowered by `lower`."""
    shapes = ({0: AUTO}, None) if dynamic else None
    args = torch.ones(3, 4), torch.ones(4)
    program = torch.export.export(Sine(), args, dynamic_shapes=shapes)
    converter = coreai_torch.TorchConverter()
    converter.register_torch_lowering("aten::sin", allow_override=True)(lower)
    return converter.add_exported_program(program.run_decompositions({})).to_coreai()


@pytest.mark.parametrize("dynamic", [False, True])
def test_only_dynamic_sizes_may_be_zero(dynamic):
    seen = []

    def lower(ctx, x):
        seen.extend([NEVER.of(x), POSSIBLE.of(x), POSSIBLE.along(x, [1])])
        return cai.sin(x)

    converted(lower, dynamic)
    assert seen == [False, dynamic, False]


def test_an_assumption_ends_with_its_block_even_after_an_error():
    build = Build()
    assert build.zero_sizes == NEVER
    with pytest.raises(KeyError), build.assume(POSSIBLE):
        raise KeyError(build.zero_sizes)
    assert build.zero_sizes == NEVER


def test_a_plain_dynamic_graph_is_lowered_under_the_assumption_never():
    seen = []

    def lower(ctx, x):
        seen.append(Build.current().zero_sizes)
        return cai.sin(x)

    converted(lower, dynamic=True)
    assert seen == [NEVER]


@pytest.mark.parametrize("rows", [2, 0])
def test_reductions_and_broadcasts_of_an_empty_selection_match_torch(rows):
    class Selected(torch.nn.Module):
        def forward(self, x):
            y = x[x > 9]
            return y.sum(), (y + 1).relu(), y.reshape(-1, 1).amax(1), y.cumsum(0)

    x = torch.tensor([1.0, 2.0, 3.0] + [20.0] * rows)
    program = coreai_torch.convert(Selected(), (x,), verify=True)  # raises if a number differs
    assert "coreai.decomposable.broadcasting_where" in program.mlir_module.operation.get_asm()
