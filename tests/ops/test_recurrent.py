"""Recurrent modules become one loop per layer and direction, for any sequence length."""

from __future__ import annotations

import pytest
import torch
from case_runner import compare
from module_runner import check, convert, run
from torch import nn
from torch.utils import _pytree as pytree

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.dynamic_rnn import keep_rnn_lengths_dynamic
from coreai_torch.errors import UnsupportedArgumentError

STEPS = 50
X = torch.randn(STEPS, 2, 6, generator=torch.Generator().manual_seed(0))
MODULES = {
    "lstm": nn.LSTM(6, 8),
    "lstm, two layers both ways": nn.LSTM(6, 8, 2, bidirectional=True),
    "lstm, projected": nn.LSTM(6, 8, 2, proj_size=3, bidirectional=True),
    "lstm, no bias": nn.LSTM(6, 8, bias=False),
    "gru": nn.GRU(6, 8),
    "gru, two layers both ways": nn.GRU(6, 8, 2, bidirectional=True),
    "gru, no bias": nn.GRU(6, 8, bias=False),
    "tanh": nn.RNN(6, 8, 2),
    "relu, both ways": nn.RNN(6, 8, nonlinearity="relu", bidirectional=True),
}


@pytest.mark.filterwarnings("ignore:LSTM with projections:UserWarning")
@pytest.mark.parametrize("name", MODULES)
def test_fifty_steps_equal_torch(name):
    check(MODULES[name].eval(), (X,))


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
def test_batch_first_unbatched_and_initial_state(module):
    torch.manual_seed(1)
    batched = module(6, 8, 2, batch_first=True).eval()
    check(batched, (X.transpose(0, 1).contiguous(),))
    check(batched, (X[:, 0],))
    state = torch.randn(2, 2, 8)
    check(module(6, 8, 2).eval(), (X, (state, state + 1) if module is nn.LSTM else state))


@pytest.mark.parametrize("cell", [nn.LSTMCell(6, 8), nn.GRUCell(6, 8), nn.RNNCell(6, 8)])
def test_cells(cell):
    check(cell.eval(), (X[0],))
    state = torch.randn(2, 8)
    check(cell, (X[0], (state, state + 1) if isinstance(cell, nn.LSTMCell) else state))


@pytest.mark.parametrize("steps", [1, 8, 9, 16, 17, 264, 300])
@pytest.mark.parametrize("batch", [1, 3])
def test_groups_of_steps_and_the_rest_equal_torch(steps, batch):
    torch.manual_seed(steps)
    check(nn.LSTM(6, 8, bidirectional=True).eval(), (torch.randn(steps, batch, 6),))


def test_graph_size_does_not_depend_on_length():
    sizes = {str(convert(MODULES["lstm"], (X[:n],))).count("coreai.") for n in (18, 26, 34, 42)}
    assert len(sizes) == 1


def test_few_steps_need_no_loop():
    assert "coreai.while" not in str(convert(MODULES["gru"], (X[:8],)))
    assert "coreai.while" in str(convert(MODULES["gru"], (X[:9],)))


def test_dynamic_batch():
    larger = torch.randn(STEPS, 7, 6)
    sizes = ({1: torch.export.Dim("batch", min=2, max=64)},)
    check(MODULES["gru"].eval(), (X,), (larger,), dynamic_shapes=sizes)


@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
def test_dynamic_length(module):
    torch.manual_seed(2)
    model = module(6, 8, 2, bidirectional=True, batch_first=True).eval()
    first = X.transpose(0, 1).contiguous()
    sizes = ({1: torch.export.Dim("steps", min=1, max=512)},)
    with keep_rnn_lengths_dynamic():
        program = convert(model, (first,), sizes)
    for x in (first, first[:, :1].contiguous(), torch.randn(2, 90, 6)):
        with torch.no_grad():
            want = pytree.tree_leaves(model(x))
        for got, expected in zip(run(program, (x,)), want, strict=True):
            compare(got, expected)


def test_add_pytorch_module_keeps_the_length_dynamic():
    model, steps = MODULES["gru"].eval(), torch.export.Dim("steps", min=1, max=512)

    def export(module):
        program = torch.export.export(module, (X,), dynamic_shapes=({0: steps},))
        return program.run_decompositions(get_decomp_table())

    program = TorchConverter().add_pytorch_module(model, export).to_coreai()
    for x in (X, X[:7].contiguous()):
        with torch.no_grad():
            want = pytree.tree_leaves(model(x))
        for got, expected in zip(run(program, (x,)), want, strict=True):
            compare(got, expected)


def test_decomposition_table_of_torch_unrolls_the_steps():
    # Otherwise the kept sizes would leave results that no op computes.
    model = MODULES["lstm"].eval()
    with keep_rnn_lengths_dynamic():
        program = torch.export.export(model, (X[:3],)).run_decompositions()
    with torch.no_grad():
        compare(program.module()(X[:3])[0], model(X[:3])[0])


def test_export_is_restored_after_the_context():
    def exported(*sizes):
        return torch.export.export(MODULES["lstm"], (X,), dynamic_shapes=sizes)

    before = len(exported().run_decompositions().graph.nodes)
    with keep_rnn_lengths_dynamic():
        exported({0: torch.export.Dim("steps")})
    assert before > 10 * STEPS  # all steps are unrolled
    assert len(exported().run_decompositions().graph.nodes) == before


def test_dropout_between_layers_is_rejected_in_training_mode():
    class Training(nn.Module):
        def forward(self, x):
            return self.inner.train()(x)

    outer = Training()
    outer.inner = nn.LSTM(6, 8, 2, dropout=0.5)
    with pytest.raises(UnsupportedArgumentError, match=r"dropout[\s\S]*model\.eval\(\)"):
        convert(outer, (X,))


def _op_count(operation):
    return sum(
        1 + _op_count(inner.operation)
        for region in operation.regions
        for block in region.blocks
        for inner in block.operations
    )


@pytest.mark.parametrize("steps", [257, 384])  # one loop carries at most 256 steps
@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU])
def test_many_steps_run_in_blocks(module, steps):
    torch.manual_seed(2)
    layer = module(3, 4, bidirectional=True).eval()
    check(layer, (torch.randn(steps, 2, 3),), optimized=(True,))


def test_scan_of_many_steps_runs_in_blocks():
    def combine(state, x):
        state = state * 0.5 + x
        return state, (state * 2.0).sum()

    def run_scan(x):
        return torch._higher_order_ops.scan(combine, torch.zeros(3), x)

    check(run_scan, (torch.randn(300, 3),), optimized=(True,))


def test_program_size_is_independent_of_the_number_of_steps():
    layer, counts = nn.LSTM(3, 4).eval(), []
    for steps in (1_000, 10_000):
        with keep_rnn_lengths_dynamic():
            program = convert(layer, (torch.randn(steps, 1, 3),))
        module = getattr(program, "_mlir_module", None) or program._module._mlir_module
        counts.append(_op_count(module.operation))
    assert counts[0] == counts[1]
