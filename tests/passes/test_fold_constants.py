"""Constant folding: what depends on constants alone is evaluated by torch, once."""

import torch
from graphs import exported, pass_graph, targets

import coreai_torch
from coreai_torch.passes.dead_code import dead_code
from coreai_torch.passes.fold_constants import fold_constants


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
