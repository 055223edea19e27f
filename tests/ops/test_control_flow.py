"""Compare branches and loops with eager torch, before and after `optimize`."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops.associative_scan import associative_scan
from torch._higher_order_ops.scan import scan
from torch.utils import _pytree as pytree

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.ir import dialect as cai
from coreai_torch.ir.types import narrow


class Call(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
        self.register_buffer("table", torch.arange(3.0))

    def forward(self, *args):
        return self.fn(self, *args)


def convert(fn, inputs, dynamic_shapes=None, converter=None):
    exported = torch.export.export(
        Call(fn), inputs, dynamic_shapes=(dynamic_shapes,) if dynamic_shapes else None
    ).run_decompositions(get_decomp_table())
    return (converter or TorchConverter()).add_exported_program(exported).to_coreai()


def check(fn, *variants, dynamic_shapes=None):
    program = convert(fn, variants[0], dynamic_shapes)
    for optimized in (False, True):
        if optimized:
            program.optimize()
        names = runtime.descriptor(program).input_names
        for inputs in variants:
            got = list(runtime.run(program, dict(zip(names, inputs, strict=True))).values())
            want = fn(Call(fn), *inputs)
            for g, w in zip(got, pytree.tree_leaves(want), strict=True):
                w = torch.as_tensor(w)
                w = w.to(narrow(w.dtype))
                torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)
    return program


X = torch.tensor([1.0, -2.0, 3.0])
DYNAMIC = torch.export.Dim.DYNAMIC
YES, NO = torch.tensor(True), torch.tensor(False)


@pytest.fixture(autouse=True)
def _fresh_dynamo():
    """Clear the trace cache of torch: a scan of width 3 would fix the width of the next one."""
    torch._dynamo.reset()


def test_cond():
    check(
        lambda m, p, x: torch.cond(p, lambda x: x * 2, lambda x: x - m.table, (x,)),
        (YES, X),
        (NO, X),
    )


def test_cond_on_data():
    check(
        lambda m, x: torch.cond(
            x.sum() > 0, lambda x: (x.sin(), x + 1), lambda x: (x * 2, -x), (x,)
        ),
        (X,),
        (-X,),
    )


def test_cond_with_constant_results():
    check(
        lambda m, p, x: torch.cond(
            p,
            lambda x: (torch.ones(2), x + 1, torch.full((), 3)),
            lambda x: (torch.zeros(2), x * 3, torch.full((), 4)),
            (x,),
        ),
        (YES, X),
        (NO, X),
    )


def test_cond_with_constant_operands():
    # The runtime cannot select between two constants, whether created in a branch or passed in.
    check(lambda m, p: torch.cond(p, lambda: m.table * 1, lambda: m.table + 1, ()), (YES,), (NO,))
    check(
        lambda m, p, x: torch.cond(
            p, lambda x: (m.table * 1, x + 1), lambda x: (m.table + 1, x - 1), (x,)
        ),
        (YES, X),
        (NO, X),
    )


def test_cond_on_a_size():
    check(
        lambda m, x: torch.cond(x.shape[0] > 4, lambda x: x * 2, lambda x: x - 1, (x,)),
        (torch.rand(3),),
        (torch.rand(7),),
        dynamic_shapes=({0: DYNAMIC},),
    )


def test_cond_on_one_element_with_results_of_other_dtypes():
    check(
        lambda m, p, x: torch.cond(
            p,
            lambda x: (x.argmin(), x > 0, x.clone()),
            lambda x: (x.argmax(), x < 0, x.clone()),
            (x,),
        ),
        (torch.tensor([True]), X),
        (torch.tensor([False]), X),
    )


def test_cond_with_layers():
    layers = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.LayerNorm(4)).eval()
    for parameter in layers.parameters():
        parameter.requires_grad_(False)
    x = torch.rand(2, 3)
    check(
        lambda m, p, x: torch.cond(p, lambda x: layers(x), lambda x: layers[0](x).cos(), (x,)),
        (YES, x),
        (NO, x),
    )


def test_nested_cond():
    def inner(p, x):
        return torch.cond(p, lambda x: x * 10, lambda x: x + 10, (x,))

    check(
        lambda m, p, q, x: torch.cond(
            p, lambda q, x: inner(q, x) + 1, lambda q, x: inner(~q, x) - 1, (q, x)
        ),
        *((p, q.clone(), X) for p in (YES, NO) for q in (YES, NO)),  # export merges equal tensors
    )


def test_cond_with_dynamic_sizes():
    check(
        lambda m, p, x: torch.cond(
            p, lambda x: x.cumsum(0) * x.shape[0], lambda x: x.flip(0), (x,)
        ),
        (YES, X),
        (NO, torch.rand(7)),
        dynamic_shapes=({}, {0: torch.export.Dim("n", min=2)}),
    )


def test_while_loop():
    def doubled(m, n, x):
        return torch.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, x * 2 + m.table), (torch.tensor(0), x)
        )

    check(doubled, (torch.tensor(4), X), (torch.tensor(0), X), (torch.tensor(9), X))


def test_while_loop_that_increments_its_counter_last():
    """A Cholesky factor; the runtime overwrote the counter before its last comparison."""

    def factor(m, x):
        places = torch.arange(5)

        def step(k, a):
            here = places == k
            column = (a * here).sum(-1)
            root = (column * here).sum(-1, keepdim=True).sqrt()
            lower = torch.where(places >= k, column / root, 0.0)
            below = torch.where(places > k, lower, 0.0)
            a = a - below.unsqueeze(-1) * below.unsqueeze(-2)
            a = torch.where(here, lower.unsqueeze(-1), a)
            return k + 1, a

        return torch.while_loop(lambda k, a: k < 5, step, (torch.tensor(0), x))

    x = torch.rand(2, 5, 5)
    check(factor, (x @ x.mT + torch.eye(5),))


def test_while_loop_until_data_satisfies_a_condition():
    def halved(m, x):
        return torch.while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x / 2,), (x,))

    check(halved, (X,), (X * 0.01,), (X * 100,))


def _halved_until(going_on):
    """Return a loop that counts its steps, and carries the values before the last step."""

    def run(m, x):
        start = torch.tensor(0), x * 1, x * 0 - 1
        return torch.while_loop(
            lambda k, new, old: going_on(new, old) & (k < 50),
            lambda k, new, old: (k + 1, (new / 2).floor(), new.clone()),
            start,
        )

    return run


@pytest.mark.parametrize(
    "going_on",
    [
        lambda new, old: (new > 0).any(),
        lambda new, old: (new != old).any(),
        lambda new, old: (new - old).abs().sum() > 0,
        lambda new, old: new @ new > 0.5,
    ],
)
def test_condition_with_temporary_tensors_keeps_the_carried_values(going_on):
    # The counter became 16842752, the bytes of `new > 0`, and the loop ended too early.
    numbers = torch.arange(20.0)
    check(_halved_until(going_on), (numbers,), (numbers * 37,), (numbers * 0,))


def test_loop_until_labels_of_connected_nodes_are_equal():
    # The labels before a step became those after it: the loop ended after one step.
    def labels(m, source, target):
        def spread(k, new, old):
            least = new.scatter_reduce(0, target, new[source], "amin")
            return k + 1, least.scatter_reduce(0, source, least[target], "amin"), new.clone()

        start = torch.tensor(0), torch.arange(40), torch.full((40,), -1)
        return torch.while_loop(lambda k, new, old: (new != old).any() & (k < 50), spread, start)

    chain = torch.arange(39)
    check(labels, (chain.flip(0), chain + 1), (chain + 1, chain), (chain % 5, chain % 7))


def test_while_loop_carries_every_dtype_and_dynamic_sizes():
    def stepped(m, x):
        start = torch.tensor(0), torch.tensor([True, False]), torch.zeros(2, dtype=torch.float16)
        return torch.while_loop(
            lambda i, b, h, x: i < x.shape[0],
            lambda i, b, h, x: (i + 1, ~b, h + 1, x * 2 + x.shape[0]),
            (*start, x),
        )

    check(stepped, (torch.rand(3, 2),), (torch.rand(6, 2),), dynamic_shapes=({0: DYNAMIC},))


def test_while_loop_that_returns_a_constant():
    check(
        lambda m, x: torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, torch.ones(3)), (torch.tensor(0), x)
        ),
        (X,),
    )


def _counted(limit, step, x):
    zero = torch.zeros((), dtype=torch.int64)
    return torch.while_loop(lambda i, x: i < limit, lambda i, x: (i + 1, step(i, x)), (zero, x))[1]


def test_while_loop_with_nested_control_flow():
    def inner(i, x):
        return _counted(i, lambda j, x: x + 1.5, x)

    def chosen(i, x):
        return torch.cond(x.sum() > 3, lambda x: x / 2, lambda x: x * 3 + 1, (x,))

    check(lambda m, x: _counted(4, inner, x), (X,))
    check(lambda m, x: _counted(6, chosen, x), (X,), (X * 10,))


def test_while_loop_inside_cond():
    def loop(x):
        return torch.while_loop(
            lambda i, x: i < 3, lambda i, x: (i + 1, x * 2), (torch.zeros((), dtype=int), x)
        )[1]

    check(
        lambda m, p, x: torch.cond(p, lambda x: loop(x), lambda x: x.clone(), (x,)),
        (YES, X),
        (NO, X),
    )


def _cumulative(carry, x):
    total = carry + x
    return total, total * 2


@pytest.mark.parametrize("reverse", [False, True])
def test_scan(reverse):
    check(
        lambda m, init, xs: scan(_cumulative, init, xs, reverse=reverse),
        (torch.zeros(3), torch.rand(5, 3)),
    )


def test_scan_of_dynamic_length():
    check(
        lambda m, init, xs: scan(_cumulative, init, xs),
        (torch.zeros(3), torch.rand(5, 3)),
        (torch.zeros(3), torch.rand(8, 3)),
        dynamic_shapes=({}, {0: torch.export.Dim("n", min=2)}),
    )


def test_scan_over_constants_and_over_one_step():
    check(lambda m, init: scan(_cumulative, init, m.table), (torch.zeros(()),))
    check(lambda m, init, xs: scan(_cumulative, init, xs), (torch.zeros(3), torch.rand(1, 3)))


def test_scan_of_several_values():
    def step(carry, x):
        return (carry[0] + x[0], carry[1] * x[1]), (carry[0] * 2, x[1].sum())

    check(
        lambda m, init, xs, ys: scan(step, (init, init + m.table), (xs, ys)),
        (torch.zeros(3), torch.rand(5, 3), torch.rand(5, 3)),
    )


@pytest.mark.parametrize("row", [lambda x: x * 2, lambda x: torch.cat([x, x])])
def test_scan_of_rows_of_dynamic_size(row):
    width = torch.export.Dim("width", min=2)
    check(
        lambda m, init, xs: scan(lambda c, x: (c + x, row(x)), init, xs),
        (torch.zeros(3), torch.rand(5, 3)),
        (torch.zeros(4), torch.rand(6, 4)),
        dynamic_shapes=({0: width}, {0: torch.export.Dim("steps", min=2), 1: width}),
    )


def test_associative_scan():
    check(
        lambda m, x: associative_scan(lambda a, b: a * b + 1, x, 0, combine_mode="generic"),
        (torch.rand(6, 2),),
    )


def test_map_over_dynamic_sizes():
    check(
        lambda m, xs: torch_map(lambda x, y: (x.cumsum(0), x.sum() + y.sum()), xs, m.table),
        (torch.rand(4, 3),),
        (torch.rand(7, 2),),
        dynamic_shapes=({0: DYNAMIC, 1: DYNAMIC},),
    )


def test_map():
    check(
        lambda m, xs, y: torch_map(lambda x, y: x.sin() + y, xs, y),
        (torch.rand(4, 3), X),
    )


def test_registered_lowering_inside_cond():
    converter, seen = TorchConverter(), []

    @converter.register_torch_lowering("aten::sin", allow_override=True)
    def sin(ctx, x: cai.Value):
        seen.append(ctx.call.node.name)
        return cai.neg(x)

    program = convert(
        lambda m, p, x: torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,)),
        (YES, X),
        converter=converter,
    )
    (got,) = runtime.run(program, {"args_0": YES, "args_1": X}).values()
    assert seen == ["sin"]
    assert got.tolist() == (-X).tolist()


def test_location_of_ops_inside_cond_names_the_module():
    class Inner(nn.Module):
        def forward(self, p, x):
            return torch.cond(p, lambda x: x.sin(), lambda x: x.cos(), (x,))

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, p, x):
            return self.inner(p, x)

    exported = torch.export.export(Outer(), (YES, X)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    text = program.mlir_module.operation.get_asm(enable_debug_info=True)
    sine = next(line for line in text.splitlines() if "coreai.sin" in line)
    assert f"{sine.split('loc(')[1].rstrip(')')} = #debuginfo" in text
    assert '"module": "inner"' in text
