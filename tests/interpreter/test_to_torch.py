"""The module that `to_torch` returns: names, states, entrypoints, watching, errors."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import torch
from coreai.authoring import AllocationType, HardwareConstraints
from dialect_programs import built, constant, gen, ops
from torch import nn

import coreai_torch
from coreai_torch import TorchConverter, get_decomp_table, to_torch
from coreai_torch.errors import ConversionError, UnsupportedOpError
from coreai_torch.interpreter import RunError, known_ops


def exported(model, *inputs, dynamic_shapes=None):
    program = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes)
    return program.run_decompositions(get_decomp_table())


def converted(model, *inputs, dynamic_shapes=None, **names):
    staged = exported(model, *inputs, dynamic_shapes=dynamic_shapes)
    return TorchConverter().add_exported_program(staged, **names).to_coreai()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(8, 32)
        self.norm = nn.LayerNorm(32)
        self.last = nn.Linear(32, 4)

    def forward(self, x, scale):
        hidden = self.norm(nn.functional.gelu(self.first(x)))
        return self.last(hidden) * scale, hidden.argmax(-1)


@pytest.fixture(scope="module")
def net():
    torch.manual_seed(0)
    return Net().eval()


X, SCALE = torch.linspace(-2, 2, 24).reshape(3, 8), torch.tensor(1.5)


@pytest.mark.parametrize("how", ["program", "optimized", "asset", "path"])
def test_to_torch_accepts_programs_assets_and_paths(net, how, tmp_path):
    program = converted(net, X, SCALE, output_names=["logits", "best"])
    if how == "optimized":
        program.optimize()
    source = program
    if how in ("asset", "path"):
        source = program.save_asset(tmp_path / "net.aimodel")
        source = source if how == "asset" else str(tmp_path / "net.aimodel")
    got = to_torch(source)(X, SCALE)
    assert list(got) == ["logits", "best"]
    logits, best = net(X, SCALE)
    torch.testing.assert_close(got["logits"], logits, rtol=1e-5, atol=1e-5)
    assert got["best"].tolist() == best.tolist()
    assert got["best"].dtype == torch.int32


def test_inputs_are_passed_in_order_by_keyword_or_as_a_mapping(net):
    module = to_torch(converted(net, X, SCALE, input_names=["a.b", "scale"]))
    want = module(X, SCALE)
    array = np.asarray(X)
    calls = [
        module(X, scale=SCALE),
        module({"a.b": array, "scale": 1.5 * np.ones((), np.float32)}),
        module.function("main")({"scale": SCALE, "a.b": X}),
    ]
    for got in calls:
        for name, value in want.items():
            torch.testing.assert_close(got[name], value, rtol=0, atol=0)


def test_what_does_not_fit_is_refused_by_name(net):
    module = to_torch(converted(net, X, SCALE))
    with pytest.raises(TypeError, match=r"missing \['scale'\], unknown \['size'\]"):
        module(X, size=SCALE)
    with pytest.raises(TypeError, match="takes 2 inputs, but got 3"):
        module(X, SCALE, SCALE)
    with pytest.raises(ValueError, match=r"'x' is tensor<3x8xf32>, but sizes \[2, 8\] were given"):
        module(X[:2], SCALE)
    with pytest.raises(TypeError, match=r"a tensor of torch.float16 was given"):
        module(X.half(), SCALE)
    with pytest.raises(KeyError, match=r"no entrypoint 'other'; the program has \['main'\]"):
        module.function("other")


def test_64_bit_inputs_are_narrowed_unless_they_overflow():
    class Gathers(nn.Module):
        def forward(self, i):
            return i * 2

    module = to_torch(converted(Gathers(), torch.arange(3)))
    assert next(iter(module(torch.tensor([4, 5, 6])).values())).tolist() == [8, 10, 12]
    with pytest.raises(ValueError, match=r"values out of the range of torch.int32"):
        module(torch.tensor([0, 0, 2**40]))


def test_a_bfloat16_array_of_numpy_is_accepted():
    class Doubles(nn.Module):
        def forward(self, x):
            return x * 2

    x = torch.tensor([1.5, -2.0], dtype=torch.bfloat16)
    array = x.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
    module = to_torch(converted(Doubles(), x))
    assert next(iter(module(array).values())).tolist() == [3.0, -4.0]


@pytest.fixture(scope="module")
def counts():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(4))

        def forward(self, x):
            before = self.total.clone()
            self.total.add_(x)
            return self.total * 2, before

    return converted(Adds(), torch.ones(4), state_names=["total"], output_names=["twice", "before"])


@pytest.mark.parametrize("optimized", [False, True])
def test_states_of_the_module_start_at_zero_and_persist(counts, optimized):
    if optimized:
        counts.optimize()
    module = to_torch(counts)
    for step in range(3):
        got = module(torch.ones(4))
        assert got["twice"].tolist() == [2.0 * (step + 1)] * 4
        assert got["before"].tolist() == [float(step)] * 4
    assert module.states["total"].tolist() == [3.0] * 4
    module.reset()
    assert module(torch.ones(4))["before"].tolist() == [0.0] * 4


@pytest.mark.parametrize("made", [torch.ones, lambda n: np.ones(n, np.float32)])
def test_given_states_are_updated_in_place(counts, made):
    module, mine = to_torch(counts), made(4)
    module.function("main")({"x": torch.ones(4)}, state={"total": mine})
    assert mine.tolist() == [2.0] * 4
    assert module.states == {}
    with pytest.raises(TypeError, match=r"the states are \['total'\]; missing \['total'\]"):
        module.function("main")({"x": torch.ones(4)}, state={})


@pytest.mark.parametrize("given", [False, True])
def test_states_can_be_swapped_and_returned(given):
    class Swaps(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("a", torch.zeros(2))
            self.register_buffer("b", torch.zeros(2))

        def forward(self, x):
            old = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(old)
            return self.a + x, self.b.clone(), x

    names = {"state_names": ["a", "b"], "output_names": ["sum", "now", "x"]}
    module = to_torch(converted(Swaps(), torch.ones(2), **names))
    mine = {"a": torch.tensor([1.0, 2.0]), "b": torch.tensor([3.0, 4.0])}
    states = mine if given else module.states
    module.states.update({name: value.clone() for name, value in mine.items()})
    for turn in range(4):
        got = module.function("main")({"x": torch.ones(2)}, state=mine if given else None)
        a, b = ([3.0, 4.0], [1.0, 2.0]) if turn % 2 == 0 else ([1.0, 2.0], [3.0, 4.0])
        assert (states["a"].tolist(), states["b"].tolist()) == (a, b)
        assert (got["sum"].tolist(), got["now"].tolist()) == ([v + 1 for v in a], b)
        for value in got.values():
            value.fill_(9.0)


def test_outputs_share_no_memory_with_inputs_and_constants():
    class Passes(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", torch.arange(6.0).reshape(2, 3))

        def forward(self, x):
            return x, self.table.t(), x.view(3, 1), x.sin(), x.sin()

    module, x = to_torch(converted(Passes(), torch.ones(3))), torch.ones(3)
    got = list(module(x).values())
    for value in got[:4]:
        value.fill_(7.0)
    torch.testing.assert_close(got[4], x.sin())
    assert x.tolist() == [1.0] * 3
    assert list(module(x).values())[1].tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


def test_each_entrypoint_is_a_function():
    class Adds(nn.Module):
        def forward(self, x):
            return x + 1

    class Doubles(nn.Module):
        def forward(self, y):
            return y * 2

    converter = TorchConverter()
    converter.add_exported_program(exported(Adds(), torch.ones(2)), entrypoint_name="adds")
    converter.add_exported_program(exported(Doubles(), torch.ones(3)), entrypoint_name="doubles")
    module = to_torch(converter.to_coreai())
    assert list(module.functions) == ["adds", "doubles"]
    assert list(module.function("adds").inputs) == ["x"]
    assert (
        next(iter(module.function("doubles")({"y": torch.ones(3)}).values())).tolist() == [2.0] * 3
    )


def test_dynamic_sizes(net):
    batch = torch.export.Dim("batch", min=2, max=64)
    module = to_torch(converted(net, X, SCALE, dynamic_shapes=({0: batch}, None)))
    for rows in (2, 5, 17):
        x = torch.linspace(-1, 1, rows * 8).reshape(rows, 8)
        got, want = module(x, SCALE), net(x, SCALE)
        torch.testing.assert_close(next(iter(got.values())), want[0], rtol=1e-5, atol=1e-5)


def test_watch_sees_every_op_and_its_module(net):
    module = to_torch(converted(net, X, SCALE, output_names=["logits", "best"]))
    seen = []
    got = module.function("main")({"x": X, "scale": SCALE}, watch=seen.append)
    assert {e.op.place.module for e in seen} >= {"first", "norm", "last"}
    assert "coreai.gelu" in {e.op.name for e in seen}
    product = next(e for e in seen if e.op.name.endswith("batch_matmul"))
    with torch.no_grad():
        want = X @ net.first.weight.T
    torch.testing.assert_close(product.results[0], want, rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(got["logits"], module(X, SCALE)["logits"], rtol=0, atol=0)


def test_watch_sees_ops_that_are_otherwise_folded():
    def body(a):
        table = constant([[1.0, 2.0], [3.0, 4.0]], "f32")
        turned = gen.TransposeOp(table, constant([1, 0], "ui32")).result
        return {"y": gen.AddOp(a, turned).result}

    x = torch.zeros(2, 2)
    module, seen = to_torch(built({"x": x}, body)), []
    watched = module.function("main")({"x": x}, watch=seen.append)
    assert [e.op.name for e in seen] == ["coreai.transpose", "coreai.add"]
    assert [s.op.name for s in module.plan("main", is_watched=False).body.steps] == ["coreai.add"]
    assert watched["y"].tolist() == module(x)["y"].tolist() == [[1.0, 3.0], [2.0, 4.0]]


def test_watch_sees_the_ops_of_composites(net):
    module = to_torch(converted(net, X, SCALE))
    composites = {f.name for f in module.program.functions.values() if f.composite}
    assert composites
    seen = []
    module.function("main")({"x": X, "scale": SCALE}, watch=seen.append)
    assert composites <= {e.function for e in seen}


def test_ops_have_source_lines_in_debug_mode(net):
    staged = exported(net, X, SCALE)
    converter = TorchConverter(mode=TorchConverter.Mode.DEBUG).add_exported_program(staged)
    module = to_torch(converter.to_coreai())
    seen = []
    module.function("main")({"x": X, "scale": SCALE}, watch=seen.append)
    lines = {(e.op.place.file, e.op.place.fx_node) for e in seen if e.op.place.line}
    assert (__file__, "mul") in lines


def test_values_are_freed_after_their_last_use():
    class Chain(nn.Module):
        def forward(self, x):
            for _ in range(20):
                x = (x + 1).sin()
            return x

    plan = to_torch(converted(Chain(), torch.ones(4))).plan("main", is_watched=False)
    values = plan.template.copy()
    values[0] = torch.ones(4)
    peak = 0
    for step in plan.body.steps:
        step.run(values, None)
        for number in step.drop:
            values[number] = None
        alive = sum(isinstance(v, torch.Tensor) and v.dim() > 0 for v in values)
        peak = max(peak, alive)
    assert peak <= 2  # the argument and one intermediate value


def test_float16_products_accumulate_in_float32():
    class Product(nn.Module):
        def forward(self, x, y):
            return x @ y

    for rows in (1, 64):
        x = torch.full((rows, 4096), 0.1, dtype=torch.float16)
        y = torch.ones(4096, 2, dtype=torch.float16)
        got = next(iter(to_torch(converted(Product(), x, y))(x, y).values()))
        assert got.tolist() == [[409.5, 409.5]] * rows  # the runtime gives 256


def test_branches_and_loops_run():
    def halves(x):
        return torch.ops.higher_order.while_loop(
            lambda v, n: v.sum() > 1, lambda v, n: (v / 2, n + 1), (x, torch.tensor(0)), ()
        )

    class Model(nn.Module):
        def forward(self, x):
            small, count = halves(x)
            chosen = torch.cond(count > 3, lambda v: v * 10, lambda v: v - 1, (small,))
            return chosen, count

    torch._dynamo.reset()
    x = torch.tensor([40.0, 24.0])
    module = to_torch(converted(Model(), x))
    chosen, count = module(x).values()
    assert (chosen.tolist(), count.item()) == ([6.25, 3.75], 6)
    chosen, count = module(torch.tensor([1.0, 1.0])).values()
    assert (chosen.tolist(), count.item()) == ([-0.5, -0.5], 1)


def test_all_unsupported_ops_are_reported_at_once(monkeypatch, net):
    program = converted(net, X, SCALE)
    known = known_ops() - {"coreai.gelu", "coreai.argmax"}
    monkeypatch.setattr("coreai_torch.interpreter.module.known_ops", lambda: known)
    with pytest.raises(UnsupportedOpError) as raised:
        to_torch(program)
    assert "cannot run coreai.argmax, which is used 1 time" in str(raised.value)
    assert "cannot run coreai.gelu, which is used 1 time" in str(raised.value)


def test_a_failing_op_is_named_in_the_error():
    x = torch.tensor([1, 2], dtype=torch.int32)
    program = built({"x": x, "y": x}, lambda a, b: {"q": gen.DivideOp(a, b).result})
    module = to_torch(program)
    with pytest.raises(
        RunError, match=r"coreai.divide\(tensor<2xsi32>, tensor<2xsi32>\): Zero"
    ) as raised:
        module(x, x * 0)
    assert str(raised.value).endswith("code  CAT203")


@pytest.mark.parametrize("place", [3, -4])
def test_an_index_out_of_bounds_raises(place):
    """The runtime on Linux writes out of bounds instead, and may crash."""

    def added(x, places):
        return x.scatter_add(0, places, torch.ones(1))

    module = torch.nn.Module()
    module.forward = added
    x = torch.zeros(3)
    run = to_torch(converted(module, x, torch.tensor([2])))
    assert next(iter(run(x, torch.tensor([2])).values())).tolist() == [0, 0, 1]
    with pytest.raises(RunError, match=r"scatter_along_axis.*out of bounds for sizes \[3\]"):
        run(x, torch.tensor([place]))


def test_a_damaged_asset_is_rejected(net, tmp_path):
    converted(net, X, SCALE).save_asset(tmp_path / "net.aimodel")
    bytecode = tmp_path / "net.aimodel" / "main.mlirb"
    raw = bytearray(bytecode.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    bytecode.write_bytes(raw)
    with pytest.raises(ConversionError, match="is damaged"):
        to_torch(tmp_path / "net.aimodel")


def test_to_torch_rejects_a_model_and_paths_without_an_asset(net, tmp_path):
    with pytest.raises(TypeError, match="a Net is not a Core AI program"):
        to_torch(net)
    with pytest.raises(FileNotFoundError, match="no asset at"):
        to_torch(tmp_path / "none.aimodel")
    with pytest.raises(ConversionError, match=r"is not an .aimodel: main.mlirb is missing"):
        to_torch(tmp_path)


def test_a_dead_op_that_cannot_be_folded_fails_only_when_it_runs():
    def body(a):
        gen.DivideOp(constant([1], "si32"), constant([0], "si32"))
        return {"y": gen.ReLUOp(a).result}

    module = to_torch(built({"x": X}, body))
    with pytest.raises(RunError, match="ZeroDivision"):
        module(X)


def test_joined_tokens_order_accesses_to_a_state():
    from coreai._compiler.ir import InsertionPoint, Location
    from coreai.authoring import Context
    from dialect_programs import ir, tensor_type

    from coreai_torch.asset.program import Program

    with Context(), Location.unknown():
        raw = ir.Module.create()
        with InsertionPoint(raw.body):
            type_ = tensor_type([2], "f32")
            handle = ops.HandleType.get(type_)
            graph = ops.GraphOp("main", [handle, type_], [], ["memory", "x"], [])
            with graph.block:
                state, x = graph.arguments
                start = ops.create_token()
                first = ops.write_handle(state, gen.ExpOp(x).result, start)
                joined = gen.JoinTokenOp(first, [start]).result
                value, last = ops.read_handle(state, joined)
            graph.outputs_spec = [("memory", last), ("y", value)]
        module = to_torch(Program._from_mlir_module(raw))
    x = torch.tensor([0.0, 1.0])
    assert list(module(x)) == ["y"]
    torch.testing.assert_close(module.states["memory"], x.exp(), rtol=1e-6, atol=1e-6)


def test_to_torch_is_public():
    assert "to_torch" in coreai_torch.__all__


def test_hardware_constraints_do_not_change_results():
    class Adds(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.zeros(2, 3))

        def forward(self, x):
            self.total.add_(x)
            return self.total * 2

    names = {"state_names": ["total"], "output_names": ["twice"]}
    program = converted(Adds(), torch.ones(2, 3), **names)
    heap = HardwareConstraints(AllocationType.Heap, [1, 1, 64], [1, 1])
    program.set_hardware_constraints("main", dict.fromkeys(("x", "twice", "total"), heap))
    module = to_torch(program)
    assert module.function("main").inputs["x"].shape == (2, 3)
    assert module(torch.ones(2, 3))["twice"].tolist() == [[2.0] * 3] * 2
    assert module.states["total"].tolist() == [[1.0] * 3] * 2


def test_enumerated_static_shapes_become_functions():
    class Doubles(nn.Module):
        def forward(self, x):
            return x * 2

    rows = {0: torch.export.Dim("rows", min=2, max=64)}
    program = converted(Doubles(), torch.ones(3, 4), dynamic_shapes=(rows,), output_names=["y"])
    program.set_static_shape_config("main", {"s8": {"x": (8, 4)}, "s2": {"x": (2, 4)}})
    program.optimize()
    module = to_torch(program)
    assert sorted(module.functions) == ["main_s2", "main_s8"]
    assert module.function("main_s8")({"x": torch.ones(8, 4)})["y"].sum() == 64


def test_float16_windows_of_three_axes_are_averaged_in_float32():
    """Torch has no such kernel for float16 on a CPU."""
    x = torch.randn(1, 2, 4, 6, 4).half()
    (got,) = to_torch(converted(nn.AvgPool3d(2), x))({"input": x}).values()
    want = nn.functional.avg_pool3d(x.float(), 2).half()
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)
