"""`convert(sizes=...)` makes one verified entry point for each size, with shared weights."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.report import summarize


class Net(nn.Module):
    """A model whose weights are much larger than its ops."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = nn.Linear(64, 1024)
        self.conv = nn.Conv1d(4, 4, 3, padding=1)

    def forward(self, x):
        return self.wide(self.conv(x))


X = torch.sin(torch.arange(512.0)).reshape(2, 4, 64)
SIZES = [(1, 4, 64), (3, 4, 64)]


def names(program) -> list[str]:
    return [function.name for function in summarize(program).functions]


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    asset = tmp_path_factory.mktemp("sizes") / "net.aimodel"
    torch.manual_seed(0)
    model = Net().eval()
    return model, coreai_torch.convert(model, (X,), sizes=SIZES, output=asset), asset


def test_each_size_is_an_entry_point(converted):
    model, program, asset = converted
    assert names(program) == names(asset) == ["main_1x4x64", "main_3x4x64"]
    for shape, name in zip(SIZES, names(program), strict=True):
        x = torch.sin(torch.arange(64.0)).expand(shape)
        (output,) = runtime.run(program, {"x": x}, entrypoint=name).values()
        torch.testing.assert_close(output, model(x), rtol=1e-4, atol=1e-5)


def test_weights_are_stored_once(converted, tmp_path):
    model, _, asset = converted
    coreai_torch.convert(model, (X[:1],), verify=False, output=tmp_path / "one.aimodel")
    weights = sum(p.numel() * p.element_size() for p in model.parameters())
    one, two = ((path / "main.mlirb").stat().st_size for path in (tmp_path / "one.aimodel", asset))
    assert weights < one < two < one + 0.05 * weights


def test_every_entry_point_is_verified(converted, monkeypatch):
    from coreai_torch.api import converting

    seen = []

    def examine(subject, program, leaves, settings):
        seen.append((settings.entrypoint, tuple(leaves[0].shape)))
        return original(subject, program, leaves, settings)

    original = converting.examine
    monkeypatch.setattr(converting, "examine", examine)
    coreai_torch.convert(
        converted[0], (X,), sizes={"small": (1, 4, 64), "large": {"x": (5, 4, 64)}}
    )
    assert seen == [("small", (1, 4, 64)), ("large", (5, 4, 64))]


class Two(nn.Module):
    def forward(self, x, *, scale):
        return x * scale


def test_inputs_are_resized_by_name():
    program = coreai_torch.convert(
        Two(), (X,), {"scale": torch.ones(64)}, sizes=[{"x": (1, 2, 64)}], verify=False
    )
    (function,) = summarize(program).functions
    assert function.name == "main_1x2x64"
    assert [port.shape for port in function.inputs] == [(1, 2, 64), (64,)]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"sizes": []}, "sizes is"),
        ({"sizes": [(1, 4)]}, "does not fit 'x' of rank 3"),
        ({"sizes": [{"y": (1, 4, 64)}]}, "no input is called 'y'"),
        ({"sizes": [(1, 4, 64), (1, 4, 64)]}, "twice"),
        ({"sizes": SIZES, "dynamic_shapes": {"x": {0: torch.export.Dim.AUTO}}}, "dynamic_shapes"),
    ],
)
def test_wrong_sizes_are_rejected(options, message):
    with pytest.raises((errors.ConversionError, errors.ArgumentTypeError), match=message):
        coreai_torch.convert(Net().eval(), (X,), verify=False, **options)


def test_exported_program_is_rejected():
    exported = torch.export.export(Net().eval(), (X,))
    with pytest.raises(errors.ConversionError, match="needs the model itself"):
        coreai_torch.convert(exported, sizes=SIZES)
