"""Run a converted decoder (two entrypoints, one cache) and a Metal kernel with `to_torch`."""

from __future__ import annotations

import torch
from decoder import Decoder
from test_decoder import COMPOSITES, PROMPT, STEPS, expected, staged
from torch import nn

from coreai_torch import (
    MetalParameter,
    TorchConverter,
    TorchMetalKernel,
    get_decomp_table,
    to_torch,
)


def generated(module):
    tokens, function = [], module.function("prefill")
    feeds = {"tokens": PROMPT, "positions": torch.arange(PROMPT.shape[1])}
    for position in range(PROMPT.shape[1], PROMPT.shape[1] + STEPS):
        tokens.append(int(function(feeds)["logits"][0, -1].argmax()))
        feeds = {"tokens": torch.tensor([[tokens[-1]]]), "positions": torch.tensor([position])}
        function = module.function("decode")
    return tokens


def test_greedy_tokens_equal_those_of_eager_torch():
    torch.manual_seed(1)
    model = Decoder().eval()
    program, names = staged(model, COMPOSITES)
    with torch.no_grad():
        want = expected(model)
    for optimized in (False, True):
        if optimized:
            program.optimize()
        module = to_torch(program)
        assert list(module.function("decode").states) == names
        assert generated(module) == want
        module.reset()
        assert generated(module) == want


def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2


ID = MetalParameter("id", "uint", "thread_position_in_grid")
DOUBLE = TorchMetalKernel("doubled_again", ["x"], ["out"], "out[id] = x[id] * 2;", double, [ID])


class WithKernel(nn.Module):
    def forward(self, x):
        return 1 + DOUBLE(
            x + 1,
            threads_per_grid=(x.shape[0], 1, 1),
            threads_per_thread_group=(32, 1, 1),
            result_shapes=[[x.shape[0]]],
        )


def test_a_metal_kernel_runs_from_its_source():
    x = torch.arange(10.0)
    exported = torch.export.export(WithKernel(), (x,)).run_decompositions(get_decomp_table())
    converter = TorchConverter().register_custom_kernels([DOUBLE])
    program = converter.add_exported_program(exported).to_coreai()
    (got,) = to_torch(program)(x).values()
    torch.testing.assert_close(got, (x + 1) * 2 + 1)
