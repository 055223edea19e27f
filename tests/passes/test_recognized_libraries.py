"""Recognition in small models of diffusers and timm."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from passes.recognized import close, exported, in_torch
from torch import nn

from coreai_torch.passes.recognize import recognized

pytestmark = pytest.mark.slow

_TIMM = """
import json, sys, torch
sys.path.insert(0, {tests!r})
from models.zoo import torchvision_library
torchvision_library.load()  # timm imports it
from timm.layers import RmsNorm
from timm.models.eva import Eva
from timm.models.vision_transformer import VisionTransformer
from passes.recognized import close, exported, in_torch
from coreai_torch.passes.recognize import recognized

small = dict(img_size=32, patch_size=8, embed_dim=32, depth=2, num_heads=2, num_classes=4)
x = torch.randn(1, 3, 32, 32)
counts = {{}}
for name, model in (
    ("eva", Eva(**small, use_rot_pos_emb=True, use_abs_pos_emb=False)),
    ("normed", VisionTransformer(**small, qk_norm=True, norm_layer=RmsNorm)),
):
    rewritten, report = recognized(exported(model, x))
    close(in_torch(rewritten, x)[0], model(x))
    assert not report.missed
    counts[name] = report.counts
print(json.dumps(counts))
"""


def test_timm():
    """Run in a child process: timm needs torchvision, which other tests must not import."""
    tests = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _TIMM.format(tests=str(tests))],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {
        "eva": {"rope": 4, "scaled_dot_product_attention": 2},
        "normed": {"rms_norm": 9, "scaled_dot_product_attention": 2},
    }


class _Flux(nn.Module):
    def __init__(self):
        super().__init__()
        diffusers = pytest.importorskip("diffusers")
        torch.manual_seed(0)
        self.model = diffusers.FluxTransformer2DModel(
            in_channels=4,
            num_layers=1,
            num_single_layers=1,
            attention_head_dim=16,
            num_attention_heads=2,
            joint_attention_dim=32,
            pooled_projection_dim=32,
            axes_dims_rope=[4, 4, 8],
        ).requires_grad_(False)

    def forward(self, image, text, pooled, time, places, text_places):
        return self.model(image, text, pooled, time, places, text_places, return_dict=False)[0]


@pytest.mark.filterwarnings("ignore")  # raised inside of the library
def test_diffusers():
    model = _Flux()
    sizes = (1, 16, 4), (1, 6, 32), (1, 32), (1,), (16, 3), (6, 3)
    given = [torch.rand(*size) for size in sizes]
    rewritten, report = recognized(exported(model, *given))
    assert report.counts == {"rms_norm": 6, "rope": 4, "scaled_dot_product_attention": 2}
    assert not report.missed
    close(in_torch(rewritten, *given)[0], model(*given))
