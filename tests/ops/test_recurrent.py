"""Recurrent modules become one composite for each layer, with a loop over many steps."""

from __future__ import annotations

import copy
import json
import math
import re

import pytest
import torch
from case_runner import compare
from module_runner import check, convert, run
from torch import nn
from torch.utils import _pytree as pytree

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.dynamic_rnn import keep_rnn_lengths_dynamic
from coreai_torch.errors import UnsupportedArgumentError
from coreai_torch.ops.nn.rnn import MOST_UNROLLED

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


def test_few_steps_need_no_loop():
    few, many = (torch.randn(n, 2, 6) for n in (MOST_UNROLLED, MOST_UNROLLED + 1))
    assert "coreai.while" not in str(convert(MODULES["gru"], (few,)))
    assert "coreai.while" in str(convert(MODULES["gru"], (many,)))


def test_linux_target_runs_steps_in_groups():
    def ops(target, n):
        exported = torch.export.export(MODULES["lstm"], (torch.randn(n, 2, 6),))
        exported = exported.run_decompositions(get_decomp_table())
        return str(TorchConverter(target=target).add_exported_program(exported).to_coreai())

    assert ("coreai.while" in ops("linux", 9), "coreai.while" in ops(None, 9)) == (True, False)


WEIGHTS = ["weight_ih", "weight_hh"]
DECLARED = {
    "lstm": (
        nn.LSTM(6, 8, 2),
        ["x", "initial_h", "initial_c", *WEIGHTS, "bias"],
        ["output", "h_n", "c_n"],
        {"recurrent_activation": "sigmoid", "cell_activation": "tanh", "activation": "tanh"},
    ),
    "gru": (
        nn.GRU(6, 8, 2),
        ["x", "initial_h", *WEIGHTS, "bias_ih", "bias_hh"],
        ["output", "h_n"],
        {"recurrent_activation": "sigmoid", "activation": "tanh", "reset_after": "true"},
    ),
    "rnn": (
        nn.RNN(6, 8, 2, nonlinearity="relu"),
        ["x", "initial_h", *WEIGHTS, "bias"],
        ["output", "h_n"],
        {"activation": "relu"},
    ),
}


@pytest.mark.parametrize("name", DECLARED)
@pytest.mark.parametrize("ways", [1, 2])
@pytest.mark.parametrize("steps", [5, MOST_UNROLLED + 1])
def test_a_layer_is_the_documented_composite(name, ways, steps):
    module, inputs, outputs, attrs = DECLARED[name]
    if ways == 2:
        kind = {"nonlinearity": "relu"} if name == "rnn" else {}
        module = type(module)(6, 8, 2, bidirectional=True, **kind)
        first = inputs.index("weight_ih")
        inputs = [*inputs, *(f"{i}_back" for i in inputs[first:])]
    text = str(convert(module.eval(), (torch.randn(steps, 3, 6),)))
    found = re.findall(r"composite_declaration<\"(\w+)\" = (\{.*?\})>", text)
    assert found
    assert {one for one, _ in found} == {name}
    for _, contract in found:
        assert f"input_names = {json.dumps(inputs)}" in contract
        assert f"output_names = {json.dumps(outputs)}" in contract
        direction = "bidirectional" if ways == 2 else "forward"
        for key, value in {**attrs, "direction": direction, "output_sequence": "true"}.items():
            wanted = value if value == "true" else f'"{value}"'
            assert f"{key} = {wanted}" in contract


def test_equal_layers_share_the_graph_of_a_composite():
    text = str(convert(nn.LSTM(8, 8, 4).eval(), (torch.randn(5, 2, 8),)))
    assert len(re.findall("composite_declaration", text)) == 1
    assert len(re.findall("coreai.invoke", text)) == 4


def test_weights_are_stored_once_in_the_order_of_the_composite():
    model = nn.LSTM(64, 64).eval()
    program = convert(model, (torch.randn(5, 2, 64),))
    program.optimize()
    constants = [op for op in program_ops(program) if op.name == "coreai.constant"]
    large = [c.result.type.shape for c in constants if math.prod(c.result.type.shape) >= 4096]
    assert sorted(map(tuple, large)) == [(256, 64), (256, 64)]


@pytest.mark.parametrize("name", ["lstm", "gru", "tanh"])
def test_long_sequences_of_half_precision_stay_in_half(name):
    x = torch.randn(200, 1, 6).half()
    text = str(convert(copy.deepcopy(MODULES[name]).half().eval(), (x,)))
    assert "f32" not in text.replace("si32", "").replace("ui32", "")


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


def program_ops(program):
    module = getattr(program, "_mlir_module", None) or program._module._mlir_module
    pending = [module.operation]
    while pending:
        op = pending.pop()
        yield op
        pending += [i.operation for r in op.regions for block in r.blocks for i in block.operations]


@pytest.mark.parametrize("steps", [129, 257, 384])
@pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
def test_many_steps_run_in_a_loop(module, steps):
    torch.manual_seed(2)
    layer = module(3, 4, bidirectional=True).eval()
    check(layer, (torch.randn(steps, 2, 3),), optimized=(True,))


def test_scan_of_many_steps():
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
        counts.append(sum(1 for _ in program_ops(program)))
    assert counts[0] == counts[1]
