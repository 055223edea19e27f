"""`to_torch` is much faster than the bundled runtime on one f16 layer of each kind of model.

A whole f16 model would take minutes on the runtime, and its layers are alike. Both sides are
measured in processor time of one process.
"""

from __future__ import annotations

import asyncio
import time

import pytest
import runtime
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table, to_torch


class VisionLayer(nn.Module):
    """One layer of ViT-B/16."""

    shape = (1, 17, 768)

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.LayerNorm(768), nn.LayerNorm(768)
        self.mixed, self.out = nn.Linear(768, 3 * 768), nn.Linear(768, 768)
        self.up, self.down = nn.Linear(768, 3072), nn.Linear(3072, 768)

    def forward(self, x):
        parts = self.mixed(self.before(x)).chunk(3, -1)
        q, k, v = (p.unflatten(-1, (12, 64)).transpose(1, 2) for p in parts)
        attended = nn.functional.scaled_dot_product_attention(q, k, v)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.between(x))))


class DecoderLayer(nn.Module):
    """One layer of a decoder with half a billion parameters: 14 query heads, 2 key heads."""

    shape = (1, 8, 896)

    def __init__(self):
        super().__init__()
        self.before, self.between = nn.RMSNorm(896), nn.RMSNorm(896)
        self.q, self.k, self.v = nn.Linear(896, 896), nn.Linear(896, 128), nn.Linear(896, 128)
        self.out = nn.Linear(896, 896, bias=False)
        self.gate, self.up = (nn.Linear(896, 4864, bias=False) for _ in range(2))
        self.down = nn.Linear(4864, 896, bias=False)

    def forward(self, x):
        h = self.before(x)
        q, k, v = (p(h).unflatten(-1, (-1, 64)).transpose(1, 2) for p in (self.q, self.k, self.v))
        k, v = (t.repeat_interleave(7, 1) for t in (k, v))
        attended = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).flatten(2))
        h = self.between(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


async def once(asset, feed):
    async with asset.executable() as model:
        function = model.load_function("main")
        given = {"x": runtime.ndarray(feed)}
        start = time.process_time()
        await function(given)
        return time.process_time() - start


@pytest.mark.slow
@pytest.mark.parametrize("layer", [VisionLayer, DecoderLayer])
def test_to_torch_is_twenty_times_faster_than_the_runtime(layer, tmp_path):
    torch.manual_seed(0)
    model, x = layer().half().eval(), torch.randn(layer.shape).half()
    exported = torch.export.export(model, (x,)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    asset = program.save_asset(tmp_path / "layer.aimodel")
    function = to_torch(asset).function("main")
    (got,) = function({"x": x}).values()
    torch.testing.assert_close(got, model(x), rtol=1e-2, atol=1e-2)
    taken = []
    for _ in range(5):
        start = time.process_time()
        function({"x": x})
        taken.append(time.process_time() - start)
    assert asyncio.run(once(asset, x)) > 20 * min(taken)
