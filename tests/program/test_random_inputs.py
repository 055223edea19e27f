"""Programs of models that draw random numbers, on the runtime."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn

from coreai_torch import convert, read_metadata, verify
from coreai_torch.asset.metadata import random_text
from coreai_torch.errors import NamingError, UnsupportedOpError

X = torch.linspace(-2, 2, 24).reshape(2, 3, 4)


class Sampler(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = nn.Linear(4, 4), nn.Dropout(0.3)

    def forward(self, x):
        hidden = self.dropout(self.linear(x))
        rows = x.shape[0]
        noise = torch.randn(rows, 3, 4)
        return hidden + noise, torch.randint(0, 5, (rows,)), torch.multinomial(x.abs()[0], 2)


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return Sampler().train()


ROWS = {"x": {0: torch.export.Dim("rows", min=1, max=9)}}


@pytest.mark.parametrize("shapes", [None, ROWS], ids=["static", "dynamic"])
@pytest.mark.parametrize("random", ["input", "seed"])
def test_the_saved_program_is_verified_with_what_it_records(model, random, shapes, tmp_path):
    path = tmp_path / "sampler.aimodel"
    program = convert(model, (X,), random=random, dynamic_shapes=shapes, output=path)
    kinds = [record["kind"] for record in read_metadata(path)["random"].values()]
    want = ["seed"] if random == "seed" else ["uniform", "normal", "integers", "uniform"]
    assert kinds == want == [r["kind"] for r in program.metadata["random"].values()]
    verdict = verify(model, path, (X,), dynamic_shapes=shapes, seconds=5)
    assert verdict.ok
    assert verdict.trials


def test_the_program_depends_on_the_seed_only(model):
    program = convert(model, (X,), random="seed", output_names=["y", "i", "m"], verify=False)
    seeds = [torch.tensor([seed], dtype=torch.int32) for seed in (1, 1, -5)]
    one, same, other = (runtime.run(program, {"x": X, "seed": seed})["y"] for seed in seeds)
    assert one.equal(same)
    assert not one.equal(other)


def test_given_names_are_those_of_the_inputs_of_the_model_or_of_all(model):
    def names(given):
        program = convert(model, (X,), random="input", input_names=given, verify=False)
        return list(program.metadata["random"])

    assert names(["pixels"]) == ["rand", "randn", "randint", "rand_1"]
    assert names(["pixels", "a", "b", "c", "d"]) == ["a", "b", "c", "d"]
    with pytest.raises(NamingError, match="input_names"):
        names(["pixels", "a"])


def test_half_precision_keeps_integers_and_float32_in_the_generator(model):
    program = convert(model, (X,), random="seed", precision="float16", calibration=[(X,)])
    assert program.verdict.ok


def test_image_inputs_precede_random_inputs():
    from coreai_torch import ImageInput

    class Noisy(nn.Module):
        def forward(self, photo):
            return photo + torch.rand_like(photo)

    photo = ImageInput(scale=1 / 255)
    program = convert(Noisy(), (torch.rand(1, 3, 4, 4),), images={"photo": photo}, random="input")
    assert program.verdict.ok
    assert list(program.metadata["random"]) == ["rand"]


def test_a_model_that_does_not_draw_is_unchanged():
    program = convert(nn.Linear(4, 2), (X,), random="seed")
    assert program.verdict.ok
    assert "random" not in program.metadata


def test_the_default_is_a_refusal_that_names_both_ways(model):
    with pytest.raises(UnsupportedOpError, match=r'random="input"(.|\n)*random="seed"'):
        convert(nn.Sequential(Draws()), (X,))


class Draws(nn.Module):
    def forward(self, x):
        return torch.rand_like(x)


def test_dropout_in_training_mode_names_both_ways():
    with pytest.raises(Exception, match=r"model.eval(.|\n)*'input' or 'seed'"):
        convert(nn.Dropout().train(), (X,))


def test_records_are_described():
    kinds = [{"kind": kind, "low": 1, "high": 3} for kind in ("uniform", "normal", "integers")]
    texts = [random_text(record) for record in [*kinds, {"kind": "seed"}]]
    assert len(set(texts)) == 4
    assert "from 1 to 3" in texts[2]
