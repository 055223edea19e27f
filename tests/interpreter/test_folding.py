"""Ops that lowerings emit on constants are evaluated, and no weight is copied for it."""

from __future__ import annotations

import numpy as np
import pytest
import runtime
import torch
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.ir import DenseElementsAttr

from coreai_torch.asset import reading
from coreai_torch.asset.extension import converted
from coreai_torch.ir import dialect, graph, types
from coreai_torch.ir.build import SMALL, Build
from coreai_torch.mlir import editing
from coreai_torch.mlir.folding import fold_emitted

LARGE = 2 * SMALL


def folded(body, size):
    """Return the program of `body(x)` after folding, and the kinds of its ops but constants."""
    build = Build()

    def named(_, inputs):
        return graph.Results([], [("y", body(*inputs))])

    with build.open():
        port = graph.Port("x", types.tensor((size,), types.element(torch.float32)))
        graph.entrypoint("main", [], [port], named)
        fold_emitted(build)
        kinds = [
            editing.kind(op) for one in editing.graphs(build.module) for op in editing.ops_of(one)
        ]
        assert build.module.operation.verify()
    return converted(build.module), [kind for kind in kinds if kind != "output"]


def run(program, x):
    return runtime.run(program, {"x": x})["y"]


def constants_of(program):
    functions = reading.read(program).functions
    ops = (op for function in functions.values() for op in function.body.ops)
    return [op.attributes["value"] for op in ops if op.name == "coreai.constant"]


def without_constants(kinds):
    return [kind for kind in kinds if kind != "constant"]


def test_a_chain_on_a_weight_becomes_one_constant():
    weight = torch.linspace(-2, 2, 600)

    def body(x):
        constant = dialect.tensor_constant(weight, "weight")
        return dialect.add(x, dialect.exp(dialect.mul(dialect.abs(constant), -0.5)))

    program, kinds = folded(body, 600)
    assert kinds == ["constant", "add"]
    x = torch.randn(600)
    torch.testing.assert_close(run(program, x), x + torch.exp(weight.abs() * -0.5))


def test_ops_on_numbers_are_evaluated():
    def body(x):
        two = dialect.constant(2.0, torch.float32)
        return dialect.mul(dialect.mul(x, two), dialect.sqrt(two))

    program, kinds = folded(body, 3)
    assert without_constants(kinds) == ["mul", "maximum", "mul"]  # a barrier between the products
    torch.testing.assert_close(run(program, torch.ones(3)), torch.full((3,), 2 * 2**0.5))


def test_all_results_of_an_op_are_replaced():
    table = torch.arange(600.0)

    def body(x):
        first, last = dialect.split(dialect.tensor_constant(table), 0, [200, 400])
        return dialect.concat(0, [dialect.add(x, first), last])

    program, kinds = folded(body, 200)
    assert sorted(without_constants(kinds)) == ["add", "concat"]
    x = torch.ones(200)
    assert torch.equal(run(program, x), torch.cat([x + table[:200], table[200:]]))


def test_a_large_transposed_weight_stays_a_view_but_its_readers_are_evaluated():
    weight = torch.randn(2, LARGE // 2)

    def body(x):
        view = dialect.transpose(dialect.tensor_constant(weight), [1, 0])
        total = dialect.reshape(dialect.reduce_sum(dialect.mul(view, view), [0]), [2])
        return dialect.concat(0, [dialect.add(x, total), dialect.reshape(view, [LARGE])])

    program, kinds = folded(body, 2)
    assert sorted(without_constants(kinds)) == ["add", "concat", "reshape", "transpose"]
    got = run(program, torch.ones(2))
    torch.testing.assert_close(got[:2], 1 + (weight * weight).sum(1))
    assert torch.equal(got[2:], weight.T.reshape(-1))


def test_an_unread_view_and_its_weight_are_dropped():
    weight = torch.randn(2, LARGE // 2)

    def body(x):
        view = dialect.transpose(dialect.tensor_constant(weight), [1, 0])
        return dialect.add(x, dialect.reduce_max(view, [0]))

    program, kinds = folded(lambda x: dialect.reshape(body(x), [2]), 2)
    assert "transpose" not in kinds
    assert sum(op.numel() for op in constants_of(program)) < LARGE
    torch.testing.assert_close(run(program, torch.zeros(2)), weight.amax(1))


@pytest.mark.parametrize(("elements", "stays"), [(600, False), (1 << 15, True)])
def test_a_large_half_weight_is_not_stored_in_more_bytes(elements, stays):
    weight = torch.full((elements,), 2e-5).half().cumsum(0).clamp(max=1)

    def body(x):
        return dialect.add(x, dialect.cast(dialect.tensor_constant(weight), torch.float32))

    program, kinds = folded(body, elements)
    assert ("cast" in kinds) == stays
    x = torch.zeros(elements)
    torch.testing.assert_close(
        run(program, x), weight.float(), rtol=0, atol=0 if not stays else 6e-5
    )


def test_small_float16_numbers_keep_their_values():
    weight = torch.tensor([1e-5, 3e-6, 6e-8]).half()

    def body(x):
        return dialect.mul(x, dialect.cast(dialect.tensor_constant(weight), torch.float32))

    program, _ = folded(body, 3)
    assert torch.equal(run(program, torch.ones(3)), weight.float())


def test_a_generated_mask_is_not_stored():
    def body(x):
        row = dialect.range(dialect.i32(0), 4_096, 1)
        column = dialect.reshape(row, [4_096, 1])
        mask = dialect.cast(dialect.greater(row, column), torch.float32)
        return dialect.add(x, dialect.reduce_sum(mask, [0]))

    program, kinds = folded(lambda x: dialect.reshape(body(x), [4_096]), 4_096)
    assert "range" in kinds
    assert sum(value.numel() for value in constants_of(program)) < 4_096
    assert torch.equal(run(program, torch.zeros(4_096)), torch.arange(4_096.0))


def test_constants_of_custom_lowerings_are_operands_too():
    def body(x):
        own = gen.ConstantOp(value=DenseElementsAttr.get(np.array([2.0, 3.0], np.float32))).result
        table = dialect.tensor_constant(torch.tensor([10.0, 20.0]))
        return dialect.add(x, gen.MulOp(table, own).result)

    program, kinds = folded(body, 2)
    assert without_constants(kinds) == ["add"]
    assert run(program, torch.zeros(2)).tolist() == [20.0, 60.0]


def test_an_op_that_cannot_be_evaluated_stays():
    def body(x):
        index = dialect.tensor_constant(torch.tensor([[7]], dtype=torch.int32))
        taken = dialect.gather_nd(dialect.tensor_constant(torch.arange(3.0)), index)
        return dialect.add(x, taken)

    _, kinds = folded(body, 1)
    assert "gather_nd" in kinds


def test_the_parts_of_a_branch_are_evaluated():
    def body(x):
        table = dialect.tensor_constant(torch.arange(600.0))
        condition = dialect.reshape(dialect.greater(dialect.reduce_sum(x, [0]), 0), [])
        (made,) = graph.branch(
            condition, [x.type], lambda: [dialect.sqrt(table)], lambda: [dialect.neg(x)]
        )
        return made

    program, kinds = folded(body, 600)
    assert "sqrt" not in kinds
    torch.testing.assert_close(run(program, torch.ones(600)), torch.arange(600.0).sqrt())
    torch.testing.assert_close(run(program, -torch.ones(600)), torch.ones(600))


def test_equal_elements_are_stored_once():
    def body(x):
        half = dialect.tensor_constant(torch.tensor(0.5).expand(100_000))
        return dialect.add(x, dialect.exp(half))

    program, kinds = folded(body, 100_000)
    assert without_constants(kinds) == ["add"]
    torch.testing.assert_close(
        run(program, torch.zeros(100_000)), torch.full((100_000,), 0.5).exp()
    )
    assert "dense<1.648" in str(program)


@pytest.mark.parametrize("kind", ["product", "tile"])
def test_a_large_expanded_weight_is_not_stored(kind):
    weight = torch.randn(2_100, generator=torch.Generator().manual_seed(0))

    def body(x):
        row = dialect.tensor_constant(weight)
        if kind == "product":
            large = dialect.mul(dialect.reshape(row, [2_100, 1]), row)
        else:
            large = dialect.tile(dialect.reshape(row, [1, 2_100]), [2_100, 1])
        return dialect.add(x, dialect.reshape(dialect.reduce_sum(large, [0]), [2_100]))

    program, kinds = folded(body, 2_100)
    assert "broadcast_to" in kinds
    assert sum(value.numel() for value in constants_of(program)) < 5_000
    total = (weight[:, None] * weight if kind == "product" else weight.expand(2_100, -1)).sum(0)
    torch.testing.assert_close(run(program, torch.zeros(2_100)), total, rtol=1e-4, atol=1e-3)


def test_a_tile_of_several_axes_is_expanded_in_order():
    weight = torch.arange(6.0 * 1_024).reshape(2, 3, 1_024)

    def body(x):
        large = dialect.tile(dialect.tensor_constant(weight), [30, 1, 30])
        return dialect.add(x, dialect.reduce_max(dialect.reduce_max(large, [1]), [0]))

    program, kinds = folded(lambda x: dialect.reshape(body(x), [30 * 1_024]), 30 * 1_024)
    assert "tile" not in kinds
    want = weight.repeat(30, 1, 30).amax((0, 1))
    assert torch.equal(run(program, torch.zeros(30 * 1_024)), want)


def test_a_large_mask_is_cast():
    mask = torch.arange(1 << 15) % 3 == 0

    def body(x):
        return dialect.add(x, dialect.cast(dialect.tensor_constant(mask), torch.float32))

    program, kinds = folded(body, 1 << 15)
    assert without_constants(kinds) == ["add"]
    assert torch.equal(run(program, torch.zeros(1 << 15)), mask.float())


def test_a_large_product_of_thin_matrices_is_evaluated():
    tall = torch.randn(4_096, 2, generator=torch.Generator().manual_seed(0)) / 64
    base = torch.ones(4_096, 4_096)

    def body(x):
        product = dialect.matmul(
            dialect.tensor_constant(tall), dialect.tensor_constant(tall.T.contiguous())
        )
        merged = dialect.add(dialect.tensor_constant(base), product)
        return dialect.reshape(dialect.matmul(dialect.reshape(x, [1, 4_096]), merged), [4_096])

    program, kinds = folded(body, 4_096)
    assert without_constants(kinds) == ["reshape", "batch_matmul", "reshape"]
    want = (torch.ones(4_096) @ (base + tall @ tall.T)).reshape(-1)
    torch.testing.assert_close(run(program, torch.ones(4_096)), want, rtol=1e-4, atol=1e-3)
