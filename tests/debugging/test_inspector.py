"""Intermediate values: the runtime agrees with torch at every op."""

from __future__ import annotations

import asyncio

import pytest
import torch
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.reading import read
from coreai_torch.debugging.debug_info import strip_debug_info
from coreai_torch.debugging.inspector import CoreAIInspector, TorchInspector
from coreai_torch.debugging.torch_utils import load_intermediates, save_intermediates


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.LayerNorm(6)
        self.linear = nn.Linear(6, 6)

    def forward(self, x):
        y = torch.relu(self.conv(x))
        y = self.norm(self.linear(y)).softmax(-1)
        best, at = y.topk(2)
        return torch.cat([best.log(), y[..., :1]], -1), at


def exported(model, *args):
    return torch.export.export(model.eval(), args).run_decompositions(get_decomp_table())


def converted(program, mode=TorchConverter.Mode.DEBUG):
    return TorchConverter(mode=mode).add_exported_program(program).to_coreai()


@pytest.fixture(scope="module")
def x():
    return torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(0))


@pytest.fixture(scope="module")
def mixed(x):
    torch.manual_seed(0)
    return exported(Mixed(), x)


def values(inspector, ids, **inputs):
    return asyncio.run(inspector.get_intermediates_for_ops(ids, inputs=inputs))


@pytest.mark.parametrize("optimized", [False, True], ids=["as-converted", "optimized"])
def test_values_of_the_runtime_agree_with_torch(mixed, x, optimized):
    program = converted(mixed)
    if optimized:
        program.optimize()
    inspector = CoreAIInspector(model=program, function_name="main")
    ids = [operation.key for operation in inspector.graph]
    real = values(inspector, ids, x=x)
    second = values(CoreAIInspector(program, engine="torch"), ids, x=x)
    computed = [o for o in inspector.graph if not o.is_constant and o.key in real]
    assert len(computed) >= 10
    for operation in computed:
        for got, want in zip(real[operation.key], second[operation.key], strict=True):
            torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, msg=str(operation))
    absent = {o.op for o in inspector.graph if not o.is_constant and o.key not in real}
    assert absent <= {"coreai.reshape", "coreai.shrink_dims", "coreai.expand_dims"}


def test_keys_are_the_recorded_op_ids(mixed):
    program = converted(mixed)
    program.optimize()
    recorded = {op.place.op_id for op in read(program).functions["main"].body.ops[:-1]}
    keys = {o.key for o in CoreAIInspector(program).graph if isinstance(o.key, int)}
    assert keys == recorded


def test_an_unknown_id_or_function_raises(mixed, x):
    with pytest.raises(KeyError, match="no operations"):
        values(CoreAIInspector(converted(mixed)), [10_000], x=x)
    with pytest.raises(KeyError, match="no function 'other'"):
        CoreAIInspector(converted(mixed), "other")


def test_a_missing_input_is_named_in_the_error(mixed):
    with pytest.raises(TypeError, match=r"missing \['x'\], unknown \['y'\]"):
        values(CoreAIInspector(converted(mixed)), [0], y=torch.zeros(1))


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("seen", torch.zeros(2))

    def forward(self, x):
        self.seen.add_(x)
        return self.seen * 2


@pytest.mark.parametrize("engine", ["runtime", "torch"])
def test_states_start_with_the_given_values(engine):
    program = converted(exported(Counter(), torch.ones(2)))
    (name,) = (p.name for p in read(program).functions["main"].inputs if p.type.kind == "handle")
    started = CoreAIInspector(program, engine=engine, states={name: torch.tensor([3.0, 4.0])})
    key = started.graph.outputs[-1]  # the state comes first
    assert values(started, [key], x=torch.ones(2))[key][0].tolist() == [8.0, 10.0]
    fresh = CoreAIInspector(program, engine=engine)
    assert values(fresh, [key], x=torch.ones(2))[key][0].tolist() == [2.0, 2.0]


class Branching(nn.Module):
    """A model with a norm called twice, a branch, a zero-size buffer and a dynamic size."""

    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.register_buffer("empty", torch.empty(0, 4))

    def forward(self, x):
        y = self.norm(torch.cat([self.empty, self.norm(x) * 2]))
        return torch.cond(x.sum() > 0, lambda y: y.sin() * 2, lambda y: y.cos(), (y,)) + 1


def test_ops_without_a_value_on_the_runtime_have_one_in_torch():
    model = Branching().requires_grad_(
        False
    )  # otherwise torch warns about the operands of the branch
    rows = torch.export.Dim("rows", min=1, max=9)
    source = torch.export.export(model, (torch.ones(2, 4),), dynamic_shapes=({0: rows},))
    program = converted(source.run_decompositions(get_decomp_table()))
    inspector = CoreAIInspector(program)
    ids = [operation.key for operation in inspector.graph]
    x = torch.randn(5, 4, generator=torch.Generator().manual_seed(0)).abs()
    real = values(inspector, ids, x=x)
    second = values(CoreAIInspector(program, engine="torch"), ids, x=x)
    assert set(second) == set(ids)
    absent = {inspector.graph.by_key[key].op for key in ids if key not in real}
    assert {"coreai.if", "coreai.invoke"} <= absent
    assert inspector.graph.outputs[0] in real
    for key, value in real.items():
        torch.testing.assert_close(value, second[key], rtol=1e-5, atol=1e-5)


def test_torch_inspector_reads_values_of_fx_nodes(mixed, x):
    inspector = TorchInspector(mixed)
    (relu,) = (o for o in inspector.graph if "relu" in o.op)
    (got,) = values(inspector, [relu.key], x=x)[relu.key]
    assert got.min() == 0
    assert relu.inputs[0] in inspector.graph.by_key


def test_intermediates_are_saved_and_loaded(mixed, x, tmp_path):
    path = save_intermediates(mixed, (x,), tmp_path / "run")
    saved = load_intermediates(tmp_path / "run")
    assert set(saved) == {n.name for n in mixed.graph.nodes if n.op == "call_function"}
    want = mixed.module()(x)[0]
    last = next(n for n in mixed.graph.nodes if n.op == "output").args[0][0]
    torch.testing.assert_close(saved[last.name], want)
    assert load_intermediates(path).keys() == saved.keys()
    save_intermediates(mixed, {"x": x}, tmp_path, node_filter=lambda n: "relu" in str(n.target))
    assert list(load_intermediates(tmp_path)) == ["relu"]


def test_strip_debug_info_removes_all_places(mixed, x):
    program = converted(mixed)
    program.optimize()
    assert strip_debug_info(program) is program
    places = [op.place for op in read(program).functions["main"].body.ops]
    assert not any(p.module or p.file or p.fx_node or p.op_id is not None for p in places)
    inspector = CoreAIInspector(program)
    assert values(inspector, inspector.graph.outputs[-1:], x=x)


def test_the_inspector_accepts_an_asset_or_its_path(mixed, x, tmp_path):
    program = converted(mixed)
    program.optimize()
    asset = program.save_asset(tmp_path / "mixed.aimodel")
    memory, saved = CoreAIInspector(program), CoreAIInspector(tmp_path / "mixed.aimodel")
    assert saved.graph == memory.graph
    key = saved.graph.outputs[0]
    want = values(memory, [key], x=x)[key]
    for inspector in (saved, CoreAIInspector(asset), CoreAIInspector(str(asset.path))):
        torch.testing.assert_close(values(inspector, [key], x=x)[key], want, rtol=0, atol=0)
