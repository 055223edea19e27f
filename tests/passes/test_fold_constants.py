"""Constant folding: what depends on constants alone is evaluated by torch, once."""

import time

import pytest
import torch
from pass_graphs import exported, pass_graph, targets

import coreai_torch
from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants
from coreai_torch.report import summarize


class Table(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("table", torch.arange(6.0))

    def forward(self, x):
        return x + self.table[torch.arange(3) * 2].neg()


def folded(model, *args, **settings):
    graph, build = pass_graph(model, *args, **settings)
    return fold_constants(dead_code(graph)), build


def test_index_arithmetic_of_constants_is_evaluated():
    graph, _build = folded(Table(), torch.ones(3))
    assert targets(graph) == ["add.Tensor"]
    operand = graph.calls[0].args[1]
    assert graph.constants[operand].tolist() == [0.0, -2.0, -4.0]


def test_a_node_that_a_user_lowers_is_not_folded():
    graph, _build = folded(Table(), torch.ones(3), is_custom=lambda node: "neg" in str(node.target))
    assert targets(graph) == ["neg.default", "add.Tensor"]


def test_overlapping_windows_of_equal_elements_are_folded():
    class Windows(torch.nn.Module):
        def forward(self, x):
            ones = x.new_ones(2, 256).view(2, 4, 64)
            return x * ones.as_strided((2, 7, 64), (256, 32, 1))

    graph, _build = folded(Windows(), torch.ones(2, 7, 64))
    assert targets(graph) == ["mul.Tensor"]
    assert torch.equal(graph.constants[graph.calls[0].args[1]], torch.ones(2, 7, 64))


def test_a_transposed_large_weight_is_not_copied():
    model = torch.nn.Linear(600, 600, bias=False)

    class Product(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = model.weight

        def forward(self, x):
            return x @ self.weight.permute(1, 0)

    graph, _build = folded(Product(), torch.ones(2, 600))
    assert "permute.default" in targets(graph)
    weights = [v for v in graph.constants.values() if isinstance(v, torch.Tensor)]
    assert [w.data_ptr() for w in weights] == [model.weight.data_ptr()]


def test_a_static_result_without_elements_is_a_constant():
    class Empty(torch.nn.Module):
        def forward(self, x):
            return x[:0] * 2, x + 1

    graph, _build = folded(Empty(), torch.ones(3, 2))
    assert targets(graph) == ["add.Tensor"]
    assert any(
        isinstance(v, torch.Tensor) and tuple(v.shape) == (0, 2) for v in graph.constants.values()
    )


class RelativePositions(torch.nn.Module):
    """The bucketed positions of MPNet and T5 for a sequence of 512."""

    def __init__(self):
        super().__init__()
        self.bias = torch.nn.Embedding(32, 12)

    def forward(self, x):
        place = torch.arange(512)
        distance = place[:, None] - place[None]
        far = 8 + (torch.log(distance.abs().float() / 8) / torch.log(torch.tensor(16.0)) * 8).long()
        far = torch.min(far, torch.full_like(far, 15))
        bucket = (distance < 0).long() * 16 + torch.where(distance.abs() < 8, distance.abs(), far)
        return x + self.bias(bucket).permute(2, 0, 1)


class Shifted(torch.nn.Module):
    """A table that is read by differences of positions."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(1023))

    def forward(self, x):
        place = torch.arange(512)
        return x + self.table[place[:, None] - place[None] + 511]


def test_large_index_arithmetic_is_folded_but_not_the_rows_of_a_weight():
    graph, _build = folded(RelativePositions(), torch.ones(12, 512, 512))
    assert targets(graph) == ["embedding.default", "permute.default", "add.Tensor"]
    indices = graph.constants[graph.calls[0].args[1]]
    assert tuple(indices.shape) == (512, 512)
    kept = [v for v in graph.constants.values() if isinstance(v, torch.Tensor) and v.numel() > 512]
    assert len(kept) == 1  # the tensors between have been freed


@pytest.mark.parametrize("model", [RelativePositions, Shifted])
def test_relative_positions_of_512_tokens_are_optimized_in_seconds(model):
    x = torch.randn(12, 512, 512)
    start = time.process_time()
    program = coreai_torch.TorchConverter().add_exported_program(exported(model(), x)).to_coreai()
    program.optimize()
    assert time.process_time() - start < 20  # 2 s; minutes if the compiler gets the arithmetic


def test_a_large_fold_is_a_small_program():
    class Fold(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.fold(x, (28, 28), 3, padding=1)

    x = torch.randn(1, 192 * 9, 28 * 28)
    program = coreai_torch.TorchConverter().add_exported_program(exported(Fold(), x)).to_coreai()
    program.optimize()
    assert summarize(program).weight_bytes < 1 << 20


def test_large_integers_of_the_model_are_not_unpacked():
    class Packed(torch.nn.Module):
        def __init__(self):
            super().__init__()
            numbers = torch.randint(0, 2**31 - 1, (600, 600), dtype=torch.int32)
            self.register_buffer("packed", numbers)

        def forward(self, x):
            shifts = torch.arange(0, 32, 4, dtype=torch.int32)
            parts = (self.packed[:, None] >> shifts[:, None]) & 15
            return x @ parts.reshape(4800, 600).float()

    graph, _build = folded(Packed(), torch.ones(1, 4800))
    tensors = [v for v in graph.constants.values() if isinstance(v, torch.Tensor)]
    assert max(t.numel() for t in tensors) == 600 * 600


class Branches(torch.nn.Module):
    def forward(self, x):
        return torch.cond(
            x.sum() > 0,
            lambda x: x * (torch.arange(4.0) * 2 + 1).sqrt(),
            lambda x: x - torch.arange(4.0).exp(),
            (x,),
        )


def test_constants_are_folded_inside_the_branches_of_cond():
    program = coreai_torch.TorchConverter().add_exported_program(
        exported(Branches(), torch.ones(4))
    )
    text = program.to_coreai().mlir_module.operation.get_asm()
    assert "coreai.if" in text
    assert not any(op in text for op in ("coreai.range", "coreai.sqrt", "coreai.exp"))
