"""Sizes, states, control flow and kernels across a boundary."""

import subprocess
import sys

import pytest
import torch
from boundary import (
    NORM,
    Model,
    Norm,
    assert_agrees,
    composite_spec,
    composites,
    converted,
    graphs,
    staged,
)
from runtime import descriptor
from torch import nn
from torch.export import Dim

from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel

X = torch.linspace(-2, 3, 18).reshape(3, 6)
N, K = Dim("n", min=2, max=64), Dim("k", min=2, max=64)


def row(count, width=6):
    return torch.linspace(-1, 2, count * width).reshape(count, width)


def varying(*dims):
    """Return the dynamic shapes of a `Model` (which takes `*args`): the first axis of each."""
    return {"args": tuple(None if d is None else {0: d} for d in dims)}


class Attend(nn.Module):
    def __init__(self, scale=0.5):
        super().__init__()
        self.scale = scale

    def forward(self, query, key, value):
        return torch.softmax(query @ key.mT * self.scale, -1) @ value


# Sizes -------------------------------------------------------------------------------------------


def test_static_query_and_dynamic_key():
    model = Model(lambda m, q, k: m.attend(q, k, k * 2).sum(0) + k.shape[0], attend=Attend())
    program = converted(
        model, X, row(4), modules=[composite_spec(Attend)], dynamic_shapes=varying(None, K)
    )
    (graph,) = composites(program, "op")
    assert graph.inputs == ["query", "key", "value"]
    assert_agrees(program, model, (X, row(4)), (X, row(9)))


class Sizes(nn.Module):
    """Computes with sizes that are first read inside of the boundary."""

    def forward(self, x, y):
        both = x.shape[0] + y.shape[0]
        return torch.cat([x, y]).reshape(both * 2, -1) * (x.shape[0] + 1) + x.new_ones(both).sum()


def test_sizes_are_read_from_the_arguments():
    def forward(m, x, y):
        count = x.new_ones(x.shape[0] + 1).sum()
        return m.op(x, y) * count, m.op(y, x), x.new_ones(x.shape[0] + y.shape[0])

    model = Model(forward, op=Sizes())
    program = converted(
        model, X, row(4), modules=[composite_spec(Sizes)], dynamic_shapes=varying(N, K)
    )
    for graph in composites(program, "op"):
        assert (graph.inputs, graph.outputs) == (["x", "y"], ["output"])
    assert_agrees(program, model, (X, row(4)), (row(5), row(7)))


def test_size_used_only_inside_is_not_computed_outside():
    class Fold(nn.Module):
        def forward(self, x):
            return x.reshape(x.shape[0] * 2, 3).sum(0)

    model = Model(lambda m, x: m.op(x), op=Fold())
    program = converted(model, X, modules=[composite_spec(Fold)], dynamic_shapes=varying(N))
    assert "get_shape" not in graphs(program)["main"].body
    assert_agrees(program, model, (X,), (row(7),))


def test_size_that_no_argument_has_is_an_operand():
    class Repeat(nn.Module):
        def forward(self, x):
            return x.expand(self.count, 6).cumsum(0)

    def forward(m, x, y):
        m.op.count = y.shape[0]
        return m.op(x) + y

    model = Model(forward, op=Repeat())
    program = converted(
        model, X[:1], row(4), modules=[composite_spec(Repeat)], dynamic_shapes=varying(None, K)
    )
    (graph,) = composites(program, "op")
    assert graph.inputs[-1] == "x"
    assert graph.argument_count == 2
    model.op.count = None  # export stored a symbol here
    assert_agrees(program, model, (X[:1], row(4)), (X[:1], row(6)))


def test_data_dependent_sizes():
    class Positive(nn.Module):
        def forward(self, x):
            return x[x > 0]

    model = Model(lambda m, x: m.op(x) * 2, op=Positive())
    program = converted(model, X, modules=[composite_spec(Positive)])
    assert_agrees(program, model, (X,), (-X,))


def test_equal_types_with_different_symbols_do_not_share_a_graph():
    """With one symbol `x + y` needs equal sizes; with two, torch rejects or broadcasts it."""
    model = Model(lambda m, x, y: (m.op(x, x), m.op(x, y)), op=Sizes())
    program = converted(
        model, X, row(4), modules=[composite_spec(Sizes)], dynamic_shapes=varying(N, K)
    )
    assert len(composites(program, "op")) == 2
    assert_agrees(program, model, (X, row(4)), (row(5), row(2)))


def test_zero_size_argument():
    class Join(nn.Module):
        def forward(self, x, y):
            return torch.cat([x, y])

    model = Model(lambda m, x: m.op(x, x[:0]), op=Join())
    program = converted(model, X, modules=[composite_spec(Join)])
    assert composites(program, "op")[0].inputs == ["x", "y"]
    assert_agrees(program, model, (X,))


# State -------------------------------------------------------------------------------------------


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(6))
        self.register_buffer("calls", torch.ones(()))

    def forward(self, x):
        self.calls.mul_(2)
        self.total.add_(x.sum(0))
        return x * self.total + self.calls


@pytest.mark.parametrize("spec", [composite_spec(Counter), Counter], ids=["composite", "plain"])
def test_mutated_buffers_are_outputs_under_their_names(spec):
    model = Model(lambda m, x: m.counter(x) + 1, counter=Counter())
    program = converted(model, X, modules=[spec])
    if spec is not Counter:
        (graph,) = composites(program, "op")
        assert graph.inputs == ["total", "calls", "x"]
        assert graph.outputs == ["total", "calls", "output"]
    assert descriptor(program).state_names == ["b_counter_total", "b_counter_calls"]
    assert_agrees(program, model, (X,))


def test_two_calls_and_two_levels_of_state():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = Counter(), Counter()
            self.register_buffer("seen", torch.zeros(6))

        def forward(self, x):
            y = self.a(self.b(self.a(x)))
            self.seen.copy_(y[0])
            return y

    model = Model(lambda m, x: m.two(x) + m.two.a.total, two=Two())
    program = converted(
        model, X, modules=[composite_spec(Counter, "counter"), composite_spec(Two, "two")]
    )
    (two,) = composites(program, "two")
    assert two.outputs == ["seen", "a.total", "a.calls", "b.total", "b.calls", "output"]
    assert len(two.callees) == 3
    assert (
        len(set(two.callees)) == 2
    )  # the second call of `a` continues from the state of the first
    for counter in composites(program, "counter"):
        assert counter.outputs == ["total", "calls", "output"]
    assert_agrees(program, model, (X,))


class Update(nn.Module):
    def forward(self, keys, values, x, at):
        keys.index_copy_(0, at, x)
        values.index_copy_(0, at, x * 2)
        return keys.sum(0) + values.sum(0)


def test_arguments_mutated_in_place():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.update = Update()
            self.register_buffer("keys", torch.zeros(8, 6))
            self.register_buffer("values", torch.zeros(8, 6))
            self.register_buffer("both", torch.zeros(2, 8, 6))

        def forward(self, x, at):
            first = self.update(self.keys, self.values, x, at)
            return self.update(self.both[0], self.both[1], first + x, at) + self.keys.sum()

    model, at = Cache(), torch.tensor([1, 3, 2])
    program = converted(model, X, at, modules=[composite_spec(Update)])
    first, second = (graphs(program)[name] for name in graphs(program)["main"].callees)
    assert first.inputs == ["keys", "values", "x", "at"]
    assert first.outputs == ["keys", "values", "output"]
    # The second one writes to views of one buffer; the buffer is the operand and the result.
    assert second.inputs == ["both", "keys", "values", "x", "at"]
    assert second.outputs == ["both", "output"]
    assert_agrees(program, model, (X, at))


# Export modes and control flow -------------------------------------------------------------------


def test_strict_export_converts_to_the_same_program():
    model = nn.Sequential(Norm(), nn.Linear(6, 6), Norm(0.5))
    by_default = converted(model, X, modules=[NORM])
    assert str(converted(model, X, modules=[NORM], strict=True)) == str(by_default)


def test_call_with_a_caught_exception_is_ignored():
    class Picky(nn.Module):
        def forward(self, x):
            y = x * 2
            if x.shape[0] == 3:
                raise RuntimeError("three")
            return y

    class Tries(nn.Module):
        def __init__(self):
            super().__init__()
            self.picky, self.norm = Picky(), Norm()

        def forward(self, x):
            try:
                return self.picky(x)
            except RuntimeError:
                return self.norm(x) + self.picky(x[:2]).sum()

    model = Tries()  # the default export fails on the exception
    program = converted(model, X, modules=[NORM, composite_spec(Picky)], strict=True)
    found = [graphs(program)[name].composite for name in graphs(program)["main"].callees]
    assert found == ["norm", "op"]
    assert_agrees(program, model, (X,))


@pytest.mark.parametrize("strict", [False, True], ids=["default", "strict"])
def test_calls_in_the_branches_of_cond(strict):
    class Either(nn.Module):
        def __init__(self):
            super().__init__()
            self.n, self.m = Norm(), Norm(0.5)

        def forward(self, x):
            def positive(x):
                return self.n(self.n(x)) * 2

            return torch.cond(x.sum() > 0, positive, lambda x: self.m(x) + self.n(x), (x,))

    model = Either()
    program = converted(model, X, modules=[NORM], strict=strict)
    assert len(graphs(program)["main"].callees) == 4
    assert sorted(g.attrs["eps"][:6] for g in composites(program, "norm")) == ["5.0000", "9.9999"]
    for graph in composites(program, "norm"):
        assert graph.inputs == ["weight", "shift", "x"]
    assert_agrees(program, model, (X,), (-X,))


def test_cond_inside_a_boundary():
    class Sign(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = Norm()

        def forward(self, x):
            return torch.cond(x.sum() > 0, lambda x: self.norm(x), lambda x: x + 1, (x,))

    model = Model(lambda m, x: m.sign(m.sign(x) - 1), sign=Sign())
    model.requires_grad_(False)  # torch reads the gradient of an intermediate tensor, and warns
    program = converted(model, X, modules=[composite_spec(Sign), NORM])
    assert all(len(graph.callees) == 1 for graph in composites(program, "op"))
    assert_agrees(program, model, (X,), (-X,))


def test_forward_under_no_grad_and_autocast():
    class Quiet(nn.Module):
        @torch.no_grad()
        def forward(self, x):
            with torch.autocast("cpu", enabled=False):
                return x.float().cos()

    model = Model(lambda m, x: m.quiet(x) * 2, quiet=Quiet())
    program = converted(model, X, modules=[composite_spec(Quiet)])
    assert composites(program, "op")[0].outputs == ["output"]
    assert_agrees(program, model, (X,))


# Contents of a boundary --------------------------------------------------------------------------


def test_recurrent_network_inside():
    torch.manual_seed(0)
    model = Model(lambda m, x: m.net(x)[0] * 2, net=nn.LSTM(6, 4, batch_first=True))
    program = converted(model, X[None], modules=[composite_spec(nn.LSTM, "network", "hidden_size")])
    (graph,) = composites(program, "network")
    weights = ["weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0"]
    assert graph.inputs == [*weights, "input"]
    assert graph.outputs == ["output_0", "output_1", "output_2"]
    assert_agrees(program, model, (X[None],))


def test_torch_composites_inside_a_composite():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x):
            return nn.functional.hardsigmoid(self.norm(x))

    model = Model(lambda m, x: m.both(x), both=Both())
    program = converted(model, X, modules=[composite_spec(Both)])
    (graph,) = composites(program, "op")
    inner = [graphs(program)[name].composite for name in graph.callees]
    assert inner == ["layer_norm", "hard_sigmoid"]
    assert_agrees(program, model, (X,))


@torch.library.custom_op("externalize_tests::twice", mutates_args=())
def twice(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@twice.register_fake
def _(x):
    return torch.empty_like(x)


def test_custom_lowering_inside():
    class Calls(nn.Module):
        def forward(self, x):
            return twice(x + 1) - 1

    converter = TorchConverter()
    places = []

    @converter.register_torch_lowering("externalize_tests::twice")
    def lower(ctx, x):
        places.append(str(x.owner.parent.name))
        from coreai_torch.ir import dialect as cai

        return cai.add(x, x)

    model = Model(lambda m, x: m.op(x), op=Calls())
    program = staged(converter, model, X, modules=[composite_spec(Calls)]).to_coreai()
    assert places == ["coreai.graph"]
    assert_agrees(program, model, (X,))


def test_metal_kernel_inside():
    def reference(x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x)

    kernel = TorchMetalKernel(
        "externalized_relu",
        ["x"],
        ["out"],
        "out[id] = x[id] > 0 ? x[id] : 0;",
        reference,
        [MetalParameter("id", "uint", "thread_position_in_grid")],
    )

    class Calls(nn.Module):
        def forward(self, x):
            grid = (x.numel(), 1, 1)
            return kernel(
                x * 2,
                threads_per_grid=grid,
                threads_per_thread_group=(18, 1, 1),
                result_shapes=[list(x.shape)],
            )

    model = Model(lambda m, x: m.op(x) + 1, op=Calls())
    converter = TorchConverter().register_custom_kernels([kernel])
    program = staged(converter, model, X, modules=[composite_spec(Calls)]).to_coreai()
    program.optimize()
    (graph,) = composites(program, "op")
    assert "metal4_kernel" in graph.body
    assert "metal4_kernel" not in graphs(program)["main"].body


# Shared weights and several entrypoints ----------------------------------------------------------


def test_modules_that_share_a_weight():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 6), nn.Linear(6, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    model, tokens = Tied(), torch.tensor([[1, 6, 2]])
    modules = [composite_spec(nn.Linear, "linear"), composite_spec(nn.Embedding, "embedding")]
    program = converted(model, tokens, modules=modules)
    assert composites(program, "linear")[0].inputs == ["weight", "input"]
    assert composites(program, "embedding")[0].inputs == ["weight", "input"]
    constants = [line for line in graphs(program)["main"].body.splitlines() if "7x6" in line]
    assert sum("coreai.constant" in line for line in constants) == 1
    assert_agrees(program, model, (tokens,))


def test_entrypoints_share_the_graphs_of_equal_calls():
    model = nn.Sequential(Norm(), nn.Linear(6, 6), Norm(0.5)).eval()
    converter = TorchConverter()
    for name, x in (("prefill", row(4)), ("again", row(4) + 1), ("decode", row(1))):
        staged(converter, model, x, modules=[NORM], names={"entrypoint_name": name})
    program = converter.to_coreai()
    called = {name: graphs(program)[name].callees for name in ("prefill", "again", "decode")}
    assert called["prefill"] == called["again"]
    assert not set(called["prefill"]) & set(called["decode"])  # other shapes
    assert len(composites(program, "norm")) == 4
    for name, count in (("prefill", 4), ("again", 4), ("decode", 1)):
        assert_agrees(program, model, (row(count),), entrypoint=name)


@pytest.mark.parametrize("spec", [NORM, Norm], ids=["composite", "plain"])
def test_entrypoints_of_two_models_keep_their_weights(spec):
    first, second = nn.Sequential(Norm()), nn.Sequential(Norm())
    nn.init.uniform_(second[0].weight)
    converter = TorchConverter()
    staged(converter, first, X, modules=[spec], names={"entrypoint_name": "first"})
    staged(converter, second, X, modules=[spec], names={"entrypoint_name": "second"})
    program = converter.to_coreai()
    assert_agrees(program, first, (X,), entrypoint="first")
    assert_agrees(program, second, (X,), entrypoint="second")


# Stability ---------------------------------------------------------------------------------------


class Sign(nn.Module):
    def forward(self, x):
        return torch.cond(x.sum() > 0, lambda x: x * 2, lambda x: x + x.shape[0], (x,))


def program_of_many_kinds():
    model = Model(lambda m, x: m.b(m.s(m.a(x))), a=Norm(), s=Sign(), b=Norm(0.5))
    model.requires_grad_(False)
    return converted(model, X, modules=[NORM, composite_spec(Sign)], dynamic_shapes=varying(N))


def test_module_text_is_equal_in_another_process():
    here = str(program_of_many_kinds())
    paths = [p for p in sys.path if p.endswith(("passes", "tests"))]
    code = f"import sys; sys.path[:0] = {paths}; import test_crossing as t; "
    other = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code + "print(t.program_of_many_kinds())"],
        env={"PYTHONHASHSEED": "3", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "b.norm_" in here
    assert other.stdout == here + "\n"
