"""Image inputs compute on the runtime what eager torch computes after the same preprocessing."""

from __future__ import annotations

import pytest
import torch
from runtime import descriptor, run
from torch import nn

import coreai_torch
from coreai_torch import ImageInput, errors

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


class Net(nn.Module):
    """A convolution and a product, as of a small classifier."""

    def __init__(self, channels: int = 3) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.stem, self.head = nn.Conv2d(channels, 4, 3, 2, 1), nn.Linear(4, 5)

    def forward(self, x):
        return self.head(self.stem(x).relu().mean((-2, -1)))


def expected(model, image, pixels, dtype=torch.float32):
    """Preprocess as the documentation says, in float64, and call the model."""
    values = pixels.movedim(-1, -3) if image.layout == "HWC" else pixels
    order = {"R": 0, "G": 1, "B": 2}
    if image.color != "GRAY":
        channels = {name: values[..., i, :, :] for i, name in enumerate(image.color)}
        values = torch.stack([channels[name] for name in order], -3)
        if image.model_color == "BGR":
            values = values.flip(-3)
    mean, std = (
        torch.tensor(value, dtype=torch.float64).reshape(-1, 1, 1)
        for value in (image.mean, image.std)
    )
    return model(((values.double() * image.scale - mean) / std).to(dtype)).float()


def pixels_for(image, batch, height, width):
    torch.manual_seed(1)
    shape = image.shape([*batch, image.channels, height, width])
    return torch.randint(0, 256, shape, dtype=torch.uint8)


CASES = [
    ImageInput(mean=MEAN, std=STD),
    ImageInput(layout="CHW", color="BGR", mean=MEAN, std=STD),
    ImageInput(color="BGRA", scale=1.0, mean=(123.7, 116.3, 103.5), std=58.0),
    ImageInput(color="RGBA", model_color="BGR"),
    ImageInput(color="GRAY", mean=0.5, std=0.25),
]


@pytest.mark.parametrize("image", CASES, ids=lambda i: f"{i.layout}-{i.color}-{i.model_color}")
def test_program_takes_pixels(image):
    model = Net(image.channels).eval()
    x = torch.rand(2, image.channels, 8, 10)
    program = coreai_torch.convert(model, (x,), images={"x": image}, verify=False)
    pixels = pixels_for(image, [2], 8, 10)
    (found,) = run(program, {"x": pixels}).values()
    torch.testing.assert_close(found, expected(model, image, pixels), rtol=1e-5, atol=1e-6)


def test_images_of_dynamic_size_and_batch_are_verified():
    model, image = Net().eval(), ImageInput(color="BGR", mean=MEAN, std=STD)
    sizes = {0: torch.export.Dim("batch", min=1, max=4), 3: torch.export.Dim("w", min=4, max=32)}
    program = coreai_torch.convert(
        model, (torch.randn(2, 3, 8, 10),), images={"x": image}, dynamic_shapes={"x": sizes}
    )
    pixels = pixels_for(image, [3], 8, 12)
    (found,) = run(program, {"x": pixels}).values()
    torch.testing.assert_close(found, expected(model, image, pixels), rtol=1e-5, atol=1e-6)
    assert program.port_notes == ("input 'x' is float32 in the model and uint8 in the program",)


def test_image_of_a_float16_model_without_batch():
    model, image = Net().eval().half(), ImageInput(mean=MEAN, std=STD)
    program = coreai_torch.convert(
        model, (torch.randn(3, 8, 10).half(),), images={"x": image}, verify=False
    )
    pixels = pixels_for(image, [], 8, 10)
    (found,) = run(program, {"x": pixels}).values()
    assert found.dtype == torch.float16
    want = expected(model, image, pixels, torch.float16)
    torch.testing.assert_close(found.float(), want, rtol=5e-3, atol=5e-3)


@pytest.mark.filterwarnings("ignore::coreai_torch.errors.CalibrationWarning")
def test_image_in_half_precision_with_pixels_as_example():
    model, image = Net().eval(), ImageInput(mean=MEAN, std=STD)
    pixels = pixels_for(image, [2], 8, 10)
    program = coreai_torch.convert(
        model, (pixels,), images={"x": image}, precision="float16", verify=False
    )
    (found,) = run(program, {"x": pixels}).values()
    torch.testing.assert_close(found, expected(model, image, pixels), rtol=1e-2, atol=1e-2)


class Flattened(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Linear(4 * 6 * 6, 2)

    def forward(self, x):
        return self.last(self.first(x).view(1, -1))


def test_view_after_permuted_pixels_runs_in_half_precision():
    options = {"images": {"x": ImageInput()}, "precision": "float16"}
    calibration = [(torch.rand(1, 3, 8, 8, dtype=torch.float64),)]
    program = coreai_torch.convert(
        Flattened().eval(), (torch.rand(1, 3, 8, 8),), calibration=calibration, **options
    )
    assert program.precision_report.error_after <= 1e-2


def test_pixels_of_another_layout_are_rejected():
    pixels = torch.zeros(1, 3, 8, 8, dtype=torch.uint8)
    with pytest.raises(errors.ConversionError, match="are not HWC with the 3 channels of RGB"):
        coreai_torch.convert(Net().eval(), (pixels,), images={"x": ImageInput()}, verify=False)


def test_image_of_an_exported_program_keeps_the_name_of_the_input():
    exported = torch.export.export(Net().eval(), (torch.randn(1, 3, 8, 8),))
    program = coreai_torch.convert(
        exported, input_names=["photo"], images={"photo": ImageInput()}, verify=False
    )
    assert descriptor(program).input_names == ["photo"]
    (port,) = coreai_torch.report.summarize(program).functions[0].inputs
    assert (port.dtype, port.shape) == ("ui8", (1, 8, 8, 3))


@pytest.mark.parametrize(
    ("images", "message"),
    [
        ({"y": ImageInput()}, "no input is called 'y'"),
        (
            {"x": ImageInput(color="GRAY")},
            r"cannot be an image in GRAY: the model takes float32\[1, 3, 8, 8\]",
        ),
        ({"x": ImageInput(mean=(1.0, 2.0))}, "pass a number, or 3 numbers"),
    ],
)
def test_wrong_images_are_rejected(images, message):
    with pytest.raises(errors.ConversionError, match=message):
        coreai_torch.convert(Net().eval(), (torch.randn(1, 3, 8, 8),), images=images)


@pytest.mark.parametrize(
    "given", [{"layout": "NHWC"}, {"color": "CMYK"}, {"std": 0}, {"mean": float("nan")}]
)
def test_wrong_settings_are_rejected(given):
    with pytest.raises(errors.ConversionError, match=next(iter(given))):
        ImageInput(**given)
