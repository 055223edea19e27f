"""An asset stores the channel order of its image inputs; all that reads an asset knows it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

import coreai_torch
from coreai_torch import ImageInput
from coreai_torch.cli import main
from coreai_torch.cli.tensors import read

MEAN = (0.485, 0.456, 0.406)


class Mixed(nn.Module):
    """Weigh the channels, so that another order gives other numbers."""

    def __init__(self, channels=3):
        super().__init__()
        self.mix = nn.Conv2d(channels, 2, 1, bias=False)
        with torch.no_grad():
            self.mix.weight.copy_(torch.arange(2.0 * channels).reshape(2, channels, 1, 1))

    def forward(self, x):
        return self.mix(x)


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    for mode, channels in (("RGB", 3), ("RGBA", 4), ("L", 1), ("LA", 2)):
        pixels = generator.integers(0, 256, (6, 5, channels), dtype=np.uint8)
        Image.fromarray(pixels.squeeze(-1) if channels == 1 else pixels, mode).save(f"{mode}.png")


def convert(image, channels=3):
    example = torch.rand(1, channels, 6, 5)
    coreai_torch.convert(
        Mixed(channels).eval(), (example,), images={"x": image}, verify=False, output="net.aimodel"
    )


def run(picture, *more):
    with pytest.raises(SystemExit) as exit_info:
        main(["run", "net.aimodel", picture, "-o", "y.npz", "--engine", "torch", *more])
    assert not exit_info.value.code
    return next(iter(read(Path("y.npz")).values()))


def expected(image, picture):
    """Return what the model computes of a picture that PIL opens in the order of the model."""
    mode = "L" if image.color == "GRAY" else "RGB"
    pixels = torch.from_numpy(np.array(Image.open(picture).convert(mode))).reshape(6, 5, -1)
    values = pixels.double().movedim(-1, 0) * image.scale
    values = values.flip(0) if image.model_color == "BGR" else values
    values = values - torch.tensor(image.mean, dtype=torch.float64).reshape(-1, 1, 1)
    return Mixed(image.channels).eval()(values.float().unsqueeze(0))


@pytest.mark.parametrize("picture", ["RGB.png", "RGBA.png", "L.png", "LA.png"])
@pytest.mark.parametrize(
    "image",
    [
        ImageInput(color="RGB", mean=MEAN),
        ImageInput(color="BGR", mean=MEAN),
        ImageInput(color="BGR", model_color="BGR", layout="CHW"),
        ImageInput(color="RGBA"),
        ImageInput(color="BGRA", layout="CHW", mean=MEAN),
        ImageInput(color="GRAY", mean=0.5),
    ],
    ids=lambda image: f"{image.layout}-{image.color}-{image.model_color}",
)
def test_run_feeds_the_channel_order_of_the_program(image, picture):
    convert(image, image.channels)
    torch.testing.assert_close(run(picture), expected(image, picture), rtol=1e-5, atol=1e-5)


def test_run_on_the_runtime_feeds_the_channel_order():
    image = ImageInput(color="BGR", mean=MEAN)
    convert(image)
    found = run("RGBA.png", "--engine", "runtime")
    torch.testing.assert_close(found, expected(image, "RGBA.png"), rtol=1e-5, atol=1e-5)


def test_alpha_of_a_picture_reaches_a_model_of_four_channels():
    coreai_torch.convert(
        nn.Identity(), (torch.rand(1, 4, 6, 5),), verify=False, output="net.aimodel"
    )
    pixels = torch.from_numpy(np.array(Image.open("RGBA.png"))).movedim(-1, 0).unsqueeze(0)
    torch.testing.assert_close(run("RGBA.png"), pixels.float() / 255)
    opaque = run("RGB.png")
    assert opaque[:, 3].eq(1).all()


def test_metadata_has_the_channel_order(capsys):
    image = ImageInput(color="BGR", layout="CHW", mean=MEAN, std=0.5)
    program = coreai_torch.convert(
        Mixed().eval(), (torch.rand(1, 3, 6, 5),), images={"x": image}, verify=False
    )
    program.save_asset("net.aimodel")
    want = {
        "layout": "CHW",
        "color": "BGR",
        "scale": 1 / 255,
        "mean": list(MEAN),
        "std": 0.5,
        "model_color": "RGB",
    }
    assert coreai_torch.read_metadata("net.aimodel") == {"images": {"x": want}}
    assert coreai_torch.read_metadata(program) == {"images": {"x": want}}
    assert ImageInput(**want) == ImageInput(**{**image.record(), "mean": list(MEAN)})
    with pytest.raises(SystemExit):
        main(["inspect", "net.aimodel"])
    assert "image x: CHW pixels in the channel order BGR" in capsys.readouterr().out
    source = coreai_torch.swift_source("net.aimodel")
    assert 'public static let x = (layout: "CHW", channelOrder: "BGR")' in source


def test_images_of_a_user_are_metadata():
    coreai_torch.convert(
        Mixed().eval(), (torch.rand(1, 3, 6, 5),), metadata={"images": "of cats"}, verify=False
    ).save_asset("net.aimodel")
    assert coreai_torch.read_metadata("net.aimodel") == {"images": "of cats"}
    assert "Images" not in coreai_torch.swift_source("net.aimodel")


def test_split_models_know_the_channel_order():
    image = ImageInput(color="BGR")
    coreai_torch.split(
        nn.Sequential(Mixed(), nn.ReLU()).eval(), (torch.rand(1, 3, 6, 5),), parts=2,
        images={"input": image}, output="parts",
    )  # fmt: skip
    with pytest.raises(SystemExit) as exit_info:
        main(["run", "parts", "RGB.png", "-o", "y.npz", "--engine", "torch"])
    assert not exit_info.value.code
    found = next(iter(read(Path("y.npz")).values()))
    torch.testing.assert_close(found, expected(image, "RGB.png").relu(), rtol=1e-5, atol=1e-5)
