"""`verify` of programs that take pixels."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import ImageInput
from coreai_torch.verification import TrialPlan

FEW = TrialPlan(seeds=1, sizes=0)
PICTURE = torch.linspace(-2, 2, 2 * 3 * 8 * 8).reshape(2, 3, 8, 8)
BGR = ImageInput(color="BGR", mean=(0.485, 0.456, 0.406), std=(0.229, 0.224, 0.225))


class Net(nn.Module):
    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.conv = nn.Conv2d(3, 4, 3)

    def forward(self, x, shift):
        return self.conv(x) + shift


ARGS = (PICTURE, torch.ones(1))


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    path = tmp_path_factory.mktemp("image") / "net.aimodel"
    names = {"input_names": ["photo", "shift"]}
    options = {"images": {"photo": BGR}, "verify": False, "output": path, **names}
    coreai_torch.convert(Net().eval(), ARGS, **options)
    return path


@pytest.mark.parametrize("names", [{}, {"input_names": ["photo", "shift"]}])
def test_the_record_of_the_asset_is_used(asset, names):
    verdict = coreai_torch.verify(Net().eval(), asset, ARGS, trials=FEW, **names)
    assert verdict, str(verdict)
    assert len(verdict.trials) >= 6


def test_an_exported_program_and_pixels_are_accepted(asset):
    exported = torch.export.export(Net().eval(), ARGS)
    assert coreai_torch.verify(exported, asset, trials=FEW)
    pixels = torch.randint(0, 256, (2, 8, 8, 3), dtype=torch.uint8)
    assert coreai_torch.verify(Net().eval(), asset, (pixels, ARGS[1]), trials=FEW)


def test_another_model_and_another_color_differ(asset):
    assert not coreai_torch.verify(Net(1).eval(), asset, ARGS, trials=FEW, locate=False)
    rgb = {"x": ImageInput(mean=BGR.mean, std=BGR.std)}
    verdict = coreai_torch.verify(Net().eval(), asset, ARGS, images=rgb, trials=FEW, locate=False)
    assert not verdict


def test_images_can_be_given_for_a_program_without_a_record():
    program = coreai_torch.convert(Net().eval(), ARGS, images={"x": BGR}, verify=False)
    assert coreai_torch.verify(Net().eval(), program, ARGS, trials=FEW)
    program.metadata = {}
    assert coreai_torch.verify(Net().eval(), program, ARGS, images={"x": BGR}, trials=FEW)
