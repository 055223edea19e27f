"""Branches and loops on the runtime, before and after `optimize`, against eager torch."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch import nn
from torch._higher_order_ops import map as torch_map
from torch._higher_order_ops.scan import scan

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.ir import dialect as cai


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
            for g, w in zip(got, want if isinstance(want, tuple) else (want,), strict=True):
                w = torch.as_tensor(w)
                w = w.to(runtime.NARROW.get(w.dtype, w.dtype))
                torch.testing.assert_close(g, w, rtol=1e-5, atol=1e-5)
    return program


X = torch.tensor([1.0, -2.0, 3.0])
YES, NO = torch.tensor(True), torch.tensor(False)


def test_a_branch():
    check(
        lambda m, p, x: torch.cond(p, lambda x: x * 2, lambda x: x - m.table, (x,)),
        (YES, X),
        (NO, X),
    )


def test_a_branch_on_data():
    check(
        lambda m, x: torch.cond(
            x.sum() > 0, lambda x: (x.sin(), x + 1), lambda x: (x * 2, -x), (x,)
        ),
        (X,),
        (-X,),
    )


def test_results_that_are_constant_in_both_branches():
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


def test_nested_branches():
    def inner(p, x):
        return torch.cond(p, lambda x: x * 10, lambda x: x + 10, (x,))

    check(
        lambda m, p, q, x: torch.cond(
            p, lambda q, x: inner(q, x) + 1, lambda q, x: inner(~q, x) - 1, (q, x)
        ),
        *((p, q.clone(), X) for p in (YES, NO) for q in (YES, NO)),  # export merges one tensor
    )


def test_a_branch_with_dynamic_sizes():
    check(
        lambda m, p, x: torch.cond(
            p, lambda x: x.cumsum(0) * x.shape[0], lambda x: x.flip(0), (x,)
        ),
        (YES, X),
        (NO, torch.rand(7)),
        dynamic_shapes=({}, {0: torch.export.Dim("n", min=2)}),
    )


def test_a_loop():
    def doubled(m, n, x):
        return torch.while_loop(
            lambda i, x: i < n, lambda i, x: (i + 1, x * 2 + m.table), (torch.tensor(0), x)
        )

    check(doubled, (torch.tensor(4), X), (torch.tensor(0), X), (torch.tensor(9), X))


def test_a_loop_until_data_says_so():
    def halved(m, x):
        return torch.while_loop(lambda x: x.abs().max() > 0.1, lambda x: (x / 2,), (x,))

    check(halved, (X,), (X * 0.01,), (X * 100,))


def test_a_loop_inside_a_branch():
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
def test_a_scan(reverse):
    check(
        lambda m, init, xs: scan(_cumulative, init, xs, reverse=reverse),
        (torch.zeros(3), torch.rand(5, 3)),
    )


def test_a_scan_of_dynamic_length():
    check(
        lambda m, init, xs: scan(_cumulative, init, xs),
        (torch.zeros(3), torch.rand(5, 3)),
        (torch.zeros(3), torch.rand(8, 3)),
        dynamic_shapes=({}, {0: torch.export.Dim("n", min=2)}),
    )


def test_a_map():
    check(
        lambda m, xs, y: torch_map(lambda x, y: x.sin() + y, xs, y),
        (torch.rand(4, 3), X),
    )


def test_registered_lowerings_work_inside_branches():
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


def test_ops_inside_branches_carry_their_module():
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
