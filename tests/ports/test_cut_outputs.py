"""A program that is cut at nodes or modules returns their values, with the right states."""

from __future__ import annotations

import pytest
import torch
from runtime import descriptor, run, run_steps
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.asset.reading import read


class Counter(nn.Module):
    """Adds up its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("calls", torch.zeros(1))

    def forward(self, x):
        self.calls.add_(1)
        self.total.add_(x.sum(0) * self.calls)
        return x * self.total


class Net(nn.Module):
    """Two counters in a row, a product for each, and an input of the second only."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = Counter(), Counter()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x, extra):
        y = self.first(self.down(self.up(x).relu()))
        return self.second(y + extra)


INPUTS = (torch.rand(2, 4), torch.rand(2, 4))


def test_cut_at_a_module_drops_the_rest():
    program = coreai_torch.convert(Net().eval(), INPUTS, outputs=["up"])
    ports = descriptor(program)
    assert (ports.input_names, ports.output_names, ports.state_names) == (["x"], ["up"], [])
    want = Net().up(INPUTS[0])
    assert torch.allclose(run(program, {"x": INPUTS[0]})["up"], want, atol=1e-6)
    assert "extra" not in {p.name for p in read(program).functions["main"].inputs}


def test_cut_keeps_the_states_that_it_depends_on():
    model = Net().eval()
    program = coreai_torch.convert(model, INPUTS, outputs=["down", "first"])
    ports = descriptor(program)
    assert ports.state_names == ["b_first_total", "b_first_calls"]
    steps = [{"x": torch.rand(2, 4)} for _ in range(3)]
    states = {"b_first_total": torch.zeros(4), "b_first_calls": torch.zeros(1)}
    found, after = run_steps(program, steps, states)
    with torch.no_grad():
        for step in steps:
            down = model.down(model.up(step["x"]).relu())
            want = model.first(down)
    assert torch.allclose(found["first"], want, atol=1e-5)
    assert torch.allclose(found["down"], down, atol=1e-6)
    assert torch.allclose(after["b_first_total"], model.first.total, atol=1e-5)


def test_cut_at_a_node_with_dynamic_batch_in_half_precision():
    exported = torch.export.export(
        Net().eval(), INPUTS, dynamic_shapes=({0: torch.export.Dim("n", min=1, max=8)},) * 2
    ).run_decompositions(coreai_torch.get_decomp_table())
    relu = next(n.name for n in exported.graph.nodes if "relu" in n.name)
    program = coreai_torch.convert(
        exported, outputs=[relu], precision="float16", calibration=[INPUTS], output_names=["h"]
    )
    x = torch.rand(5, 4)
    want = Net().up(x).relu()
    assert torch.allclose(run(program, {"x": x})["h"], want, atol=5e-3)


def test_cut_of_an_image_model_in_one_call():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3)).eval()
    program = coreai_torch.convert(
        model, (torch.rand(1, 3, 8, 8),), outputs=["0"], images={"input": coreai_torch.ImageInput()}
    )
    pixels = torch.randint(0, 256, (1, 8, 8, 3), dtype=torch.uint8)
    (found,) = run(program, {"input": pixels}).values()
    want = model[0](pixels.permute(0, 3, 1, 2) / 255)
    assert torch.allclose(found, want, atol=1e-5)


@pytest.mark.parametrize(("wanted", "near"), [("frist", "first"), ("secnod", "second")])
def test_unknown_name_is_rejected_with_the_nearest(wanted, near):
    with pytest.raises(errors.NamingError, match=near):
        coreai_torch.convert(Net().eval(), INPUTS, outputs=[wanted])


@pytest.mark.parametrize("wanted", [[], "up", [3]])
def test_outputs_must_be_a_list_of_names(wanted):
    with pytest.raises(errors.NamingError, match="outputs is"):
        coreai_torch.convert(Net().eval(), INPUTS, outputs=wanted)
