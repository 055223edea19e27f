"""Names and order of inputs and outputs in the runtime descriptor."""

from __future__ import annotations

import runtime
import torch
from staging import converted
from torch import nn


class TwoOfEach(nn.Module):
    def forward(self, x, z):
        return x + z, x * z


def test_default_names_come_from_the_graph():
    desc = runtime.descriptor(converted(TwoOfEach(), torch.ones(3), torch.ones(3)))
    assert (desc.input_names, desc.output_names, desc.state_names) == (
        ["x", "z"],
        ["add", "mul"],
        [],
    )


def test_given_names_reach_the_runtime_in_order():
    program = converted(
        TwoOfEach(),
        torch.ones(3),
        torch.ones(3),
        input_names=["query", "key.0"],
        output_names=["sum", "product[1]"],
    )
    desc = runtime.descriptor(program)
    assert (desc.input_names, desc.output_names) == (["query", "key.0"], ["sum", "product[1]"])


def test_outputs_keep_their_order():
    class Everything(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(4.0))

        def forward(self, x, unused):
            y = x + 1
            return y, y, x, self.table, torch.full((2,), 7.0), y

    x = torch.tensor([1.0, 2.0])
    program = converted(Everything(), x, torch.ones(5))
    for _ in range(2):
        desc = runtime.descriptor(program)
        assert desc.input_names == ["x", "unused"]
        assert desc.output_names == ["add", "add_1", "x", "b_table", "full", "add_2"]
        got = runtime.run(program, {"x": x, "unused": torch.ones(5)})
        assert [v.tolist() for v in got.values()] == [
            [2.0, 3.0],
            [2.0, 3.0],
            [1.0, 2.0],
            [0.0, 1.0, 2.0, 3.0],
            [7.0, 7.0],
            [2.0, 3.0],
        ]
        program.optimize()


def test_non_tensor_arguments_are_folded():
    class Flags(nn.Module):
        def forward(self, x, mask=None, use_cache=False, scale=2.0, times=3, mode="sum"):
            y = x * scale if not use_cache else x
            if mask is not None:
                y = y * mask
            return (y * times).sum() if mode == "sum" else y

    x = torch.tensor([1.0, 2.0])
    program = converted(Flags(), x, None, False, 0.5, 3, "keep")
    assert runtime.descriptor(program).input_names == ["x"]
    assert next(iter(runtime.run(program, {"x": x}).values())).tolist() == [0.5, 1.0]


def test_keyword_arguments_and_structures():
    class Structured(nn.Module):
        def forward(self, pair, *, extra):
            return {"b": pair[0] + extra["e"], "a": (pair[1], None, 5)}

    pair = (torch.ones(2), torch.zeros(2))
    program = converted(Structured(), pair, kwargs={"extra": {"e": torch.ones(2)}})
    desc = runtime.descriptor(program)
    assert desc.input_names == ["pair_0", "pair_1", "extra_e"]
    got = runtime.run(program, dict(zip(desc.input_names, [*pair, torch.ones(2)], strict=True)))
    assert [v.tolist() for v in got.values()] == [[2.0, 2.0], [0.0, 0.0], 5]


def test_symbolic_integer_output():
    class Length(nn.Module):
        def forward(self, x):
            return x.shape[0] * 2 + 1, x

    shapes = ({0: torch.export.Dim.DYNAMIC},)
    program = converted(Length(), torch.ones(5), dynamic_shapes=shapes)
    got = list(runtime.run(program, {"x": torch.ones(7)}).values())
    assert got[0].item() == 15
