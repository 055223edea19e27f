"""For each rule, a program that breaks it and a similar one that does not."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.reading import Port, Program, Type, read
from coreai_torch.errors import NarrowingWarning

from . import made
from .made import constant, op, tensor

X = torch.linspace(-2, 2, 32).reshape(4, 8)
HALF = X.half()
INDEX = torch.zeros(4, 2, dtype=torch.int64)
QUERY = torch.ones(1, 2, 8, 16)


@dataclass(frozen=True)
class Case:
    """Two programs, made when they are needed."""

    code: str
    hazard: Callable[[], Program]
    clean: Callable[[], Program]
    ranges: tuple[object, object] = (None, None)  # of the dynamic sizes of the two programs


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs):
        return self.function(*inputs)


class Buffer(nn.Module):
    """A function of the inputs and a constant."""

    def __init__(self, function, value) -> None:
        super().__init__()
        self.function = function
        self.register_buffer("value", value)

    def forward(self, *inputs):
        return self.function(*inputs, self.value)


class States(nn.Module):
    """Buffers that are written with the input."""

    def __init__(self, *shapes, write) -> None:
        super().__init__()
        self.write = write
        for index, shape in enumerate(shapes):
            self.register_buffer(f"state_{index}", torch.zeros(shape))

    def forward(self, *inputs):
        for state in self.buffers():
            self.write(state, *inputs)
        return inputs[0] * 2


def converted(module, *inputs, mode=TorchConverter.Mode.RELEASE, dynamic=None):
    """Return a maker of the converted program."""
    module = module if isinstance(module, nn.Module) else Call(module)

    def make() -> Program:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", NarrowingWarning)
            return _convert()

    def _convert() -> Program:
        exported = torch.export.export(module.eval(), inputs, dynamic_shapes=dynamic)
        decomposed = exported.run_decompositions(get_decomp_table())
        return read(TorchConverter(mode).add_exported_program(decomposed).to_coreai())

    return make


def by_hand(program: Program):
    return lambda: program


def write_row(state, x):
    state[:, 1:2] = x


def write_index(state, x, index):
    state.index_copy_(1, index, x)


def add_whole(state, x):
    state.add_(x.sum())


def _scaled(element: str, scale, user: str) -> Program:
    """Return a weight with these scales that `user` takes."""
    weight = op(
        "blockwise_shift_scale",
        (1, 2),
        (3,),
        (tensor("f16", 8, 8),),
        (tensor(element, 8, 8), tensor("f16", *scale)),
    )
    return made.ops(weight, op(user, (0, 3), (4,), (tensor("f16", 4, 8),)))


def _dequantized(name: str) -> Program:
    listed = [op(n, (0,), (i,), (tensor("f16", 8),)) for i, n in ((1, "dequantize"), (2, name))]
    return made.ops(*listed, op("mul", (1, 2), (3,), (tensor("f16", 8),)))


def _gated(count: int) -> Program:
    dynamic = Type("tensor", (1, -1), "f32")
    calls = [op("invoke", (0,), (i + 1,), (), (dynamic,), callee="delta") for i in range(count)]
    calls.append(op("invoke", (0,), (9,), (), (dynamic,), callee="attend"))
    return made.program(
        made.function(name="delta", composite="gated_delta_update"),
        made.function(name="attend", composite="scaled_dot_product_attention"),
        made.function(calls),
    )


def _beside_compressed(element: str) -> Program:
    listed = op("lut_to_dense", (0, 1), (2,), (tensor("f16", 8),), (tensor("ui4", 8),) * 2)
    return made.ops(listed, constant(3, tensor(element, 1024, 1024)))


def _wave(constant_operand: bool) -> Program:
    listed = [constant(1, tensor("f32", 8))] if constant_operand else []
    return made.ops(*listed, op("cos", (1,), (2,), (tensor("f32", 8),)))


def _casts(middle: str) -> Program:
    first = op("cast", (0,), (1,), (tensor(middle, 8),), (tensor("f32", 8),))
    return made.ops(first, op("cast", (1,), (2,), (tensor("f32", 8),), (tensor(middle, 8),)))


def _table(rank: int) -> Program:
    types = (tensor("ui4", 8), tensor("f16", *(1,) * rank))
    return made.ops(op("lut_to_dense", (0, 1), (2,), (tensor("f16", 8),), types))


def _writes(count: int) -> Program:
    writes = [op("write_handle", (0, 1, 2), (i + 3,), ()) for i in range(count)]
    return made.program(made.function(writes, [Port("state", Type("handle", (4, 8), "f32"))]))


def _attention(query: int, value: int):
    def attend(q, v, mask):
        return F.scaled_dot_product_attention(q, q, v, attn_mask=mask)

    inputs = torch.ones(1, 1, 4, query), torch.ones(1, 1, 4, value), torch.zeros(4, 4)
    return converted(attend, *inputs)


def _kernel(size: int) -> Program:
    return made.ops(op("metal4_kernel", (0,), (1,), (tensor("f32", size, 8),)))


NOTHING = by_hand(made.ops(op("relu", (0,), (1,), (tensor("f32", 4, 8),), (tensor("f32", 4, 8),))))
BATCH = torch.export.Dim("batch", min=2, max=8)

CASES = [
    Case("HAZ01", by_hand(made.ports(tensor("si64", 4))), by_hand(made.ports(tensor("si32", 4)))),
    Case(
        "HAZ02",
        by_hand(made.ports(tensor("f32", 4), tensor("f32", 4), names=("x", "x"))),
        by_hand(made.ports(tensor("f32", 4), tensor("f32", 4), names=("x", "y"))),
    ),
    Case("HAZ03", by_hand(made.ops(op("slice", (0,), (1,), (tensor("f32", 4, 0),)))), NOTHING),
    Case(
        "HAZ04",
        converted(lambda x, m: torch.where(m, x, 0.0), X, X > 0),
        converted(lambda x: torch.where(x > 0, x, 0.0), X),
    ),
    Case(
        "HAZ05",
        converted(torch.relu, X, mode=TorchConverter.Mode.DEBUG),
        converted(torch.relu, X),
    ),
    Case("HAZ06", converted(torch.argsort, HALF), converted(torch.argsort, X)),
    Case(
        "HAZ07",
        converted(lambda x: x.reshape(1, 2, 2, 2, 2, 2) * 2, X),
        converted(lambda x: x.reshape(2, 2, 2, 2, 2) * 2, X),
    ),
    Case("HAZ08", by_hand(made.ops(op("while", (0,), (1,), (tensor("f32", 4),)))), NOTHING),
    Case("HAZ09", by_hand(_kernel(4)), NOTHING),
    Case("HAZ10", converted(torch.nonzero, X), converted(lambda x: (x != 0).float(), X)),
    Case("HAZ11", converted(torch.round, X), converted(torch.floor, X)),
    Case("HAZ12", by_hand(_casts("si32")), converted(lambda x: x.long().float(), X)),
    Case(
        "HAZ13",
        converted(lambda x: ((x > 0) & (x < 1)).float(), X),
        converted(lambda x: (x > 0).float() * (x < 1).float(), X),
    ),
    Case(
        "HAZ14",
        converted(lambda x: ((x > 0) & (x < 1)).float(), INDEX),
        converted(lambda x: ((x > 0) & (x < 1)).float(), X),
    ),
    Case("HAZ15", converted(lambda x: x.argmax(1), X), converted(lambda x: x.amax(1), X)),
    Case(
        "HAZ16",
        converted(nn.Sequential(nn.Linear(8, 8), nn.Hardswish()).half(), HALF),
        converted(nn.Sequential(nn.Linear(8, 8), nn.Hardswish()), X),
    ),
    Case(
        "HAZ17",
        converted(lambda x: torch.log(1 + torch.exp(x)), HALF),
        converted(lambda x: F.softplus(x) + torch.logsumexp(x, 1, keepdim=True), HALF),
    ),
    Case(
        "HAZ18",
        converted(lambda x: (x * x).mean(-1), HALF),
        converted(lambda x: (x.float() * x.float()).mean(-1).half(), HALF),
    ),
    Case("HAZ19", by_hand(_wave(True)), by_hand(_wave(False))),
    Case(
        "HAZ20",
        converted(nn.ConvTranspose1d(4, 4, 3), X.reshape(1, 4, 8)),
        converted(nn.ConvTranspose2d(4, 4, 3), X.reshape(1, 4, 2, 4)),
    ),
    Case(
        "HAZ22",
        by_hand(_scaled("si4", (8, 2), "conv2d")),
        by_hand(_scaled("si4", (8, 1), "conv2d")),
    ),
    Case("HAZ23", by_hand(_dequantized("dequantize")), by_hand(_dequantized("relu"))),
    Case(
        "HAZ24",
        by_hand(_scaled("si8", (8, 1), "batch_matmul")),
        by_hand(_scaled("si8", (8, 2), "batch_matmul")),
    ),
    Case("HAZ25", by_hand(_writes(2)), by_hand(_writes(1))),
    Case(
        "HAZ26",
        converted(lambda x: x.sum(1)[:, None] + x.sum(1)[None], X),
        converted(lambda x: x.sum(1)[:, None] + x.sum(0)[None], X),
    ),
    Case("HAZ28", converted(torch.sum, INDEX), converted(torch.sum, X)),
    Case("HAZ29", converted(lambda x: x.cumsum(0), INDEX), converted(lambda x: x.cumsum(0), X)),
    Case(
        "HAZ30",
        converted(lambda x, i: x.scatter(1, i, 1.0), X, INDEX),
        converted(Buffer(lambda x, i: x.scatter(1, i, 1.0), INDEX), X),
    ),
    Case(
        "HAZ31",
        converted(
            lambda p, v: p.softmax(-1) @ v, torch.ones(2, 4096).half(), torch.ones(4096, 2).half()
        ),
        converted(
            lambda p, v: p.softmax(-1) @ v, torch.ones(2, 64).half(), torch.ones(64, 2).half()
        ),
    ),
    Case(
        "HAZ32",
        converted(Buffer(torch.add, torch.full((4, 8), -65504.0).half()), HALF),
        converted(Buffer(torch.add, torch.full((4, 8), -10000.0).half()), HALF),
    ),
    Case(
        "HAZ33",
        by_hand(made.ops(constant(1, tensor("f16"), value=torch.tensor(1e-5).half()))),
        by_hand(made.ops(constant(1, tensor("f16"), value=torch.tensor(1e-3).half()))),
    ),
    Case(
        "HAZ34",
        converted(Buffer(torch.add, torch.full((4, 8), float("nan"))), X),
        converted(Buffer(torch.add, torch.zeros(4, 8)), X),
    ),
    Case(
        "HAZ35",
        converted(States((2, 16, 4), write=write_index), torch.ones(2, 1, 4), torch.tensor([3])),
        converted(States((2, 16, 4), write=write_row), torch.ones(2, 1, 4)),
    ),
    Case(
        "HAZ36",
        converted(lambda q: F.scaled_dot_product_attention(q, q, q), QUERY),
        _attention(16, 16),
    ),
    Case("HAZ37", _attention(16, 8), _attention(16, 16)),
    Case("HAZ38", _attention(512, 512), _attention(16, 16)),
    Case("HAZ39", by_hand(_gated(2)), by_hand(_gated(1))),
    Case("HAZ40", converted(lambda x: x * 2, X.bfloat16()), converted(lambda x: x * 2, HALF)),
    Case("HAZ41", by_hand(_table(6)), by_hand(_table(5))),
    Case("HAZ42", by_hand(_kernel(-1)), by_hand(_kernel(4))),
    Case(
        "HAZ43",
        by_hand(made.ops(constant(1, tensor("f16", 1 << 20, 1000)))),
        by_hand(made.ops(constant(1, tensor("f16", 1 << 20, 100)))),
    ),
    Case(
        "HAZ47",
        converted(States((2, 2048, 1, 4), write=write_row), torch.ones(2, 1, 1, 4)),
        converted(States((2, 1024, 1, 4), write=write_row), torch.ones(2, 1, 1, 4)),
    ),
    Case(
        "HAZ48",
        converted(States(*[(1, 2, 4, 4)] * 3, write=add_whole), X),
        converted(States(*[(1, 2, 4, 4)] * 2, write=add_whole), X),
    ),
    Case(
        "HAZ49",
        converted(States((2, 4), (2, 8), write=add_whole), X),
        converted(States((2, 4), (3, 4), write=add_whole), X),
    ),
    Case(
        "HAZ50",
        converted(lambda x: tuple(x * i for i in range(2, 18)), X),
        converted(lambda x: tuple(x * i for i in range(2, 6)), X),
    ),
    Case(
        "HAZ51",
        converted(
            lambda x: torch.tanh(torch.relu(torch.sigmoid(x * x + x)).float().exp().half()), HALF
        ),
        converted(lambda x: torch.tanh(torch.relu(torch.sigmoid(x * x + x)).exp()), HALF),
    ),
    Case(
        "HAZ52", converted(lambda x, i: (x * 2)[i], X, INDEX[:, 0]), converted(lambda x: x[1:3], X)
    ),
    Case("HAZ53", converted(lambda x: torch.sort(x)[0], X), converted(lambda x: x.amax(1), X)),
    Case(
        "HAZ54",
        converted(torch.relu, X, dynamic=(({0: BATCH},),)),
        converted(torch.relu, X),
    ),
    Case("HAZ55", by_hand(_beside_compressed("f16")), by_hand(_beside_compressed("ui8"))),
    Case("HAZ56", converted(torch.relu, HALF), converted(torch.relu, X)),
    Case(
        "HAZ57",
        converted(lambda x: x * 2, torch.ones(1, 64, 512, 2)),
        converted(lambda x: x * 2, torch.ones(1, 2, 64, 512)),
    ),
    Case(
        "HAZ58",
        by_hand(made.ports(tensor("f32", -1))),
        by_hand(made.ports(tensor("f32", -1))),
        tuple({"main": {"x0": {"0": ["batch", 1, upper]}}} for upper in (None, 8)),
    ),
]


def _transposed_convolution(kernel) -> Program:
    types = (tensor("f32", 1, 8, 1, 1), tensor("f32", 8, 4, *kernel))
    return made.ops(op("conv_transpose2d", (0, 1), (2,), (tensor("f32", 1, 4, *kernel),), types))


def _route(scores):
    weights, experts = scores.softmax(-1).topk(2)
    return torch.zeros_like(scores).scatter(1, experts, weights)


# Other forms of the same constructs.
MORE_CASES = [
    Case(
        "HAZ17",
        converted(lambda x: torch.log(1 + torch.exp(x - 1)), HALF),
        converted(lambda x: torch.log(torch.exp(x - x.amax(1, keepdim=True)).sum(1)), HALF),
    ),
    Case(
        "HAZ17",
        converted(lambda x: torch.log1p(torch.exp(x)), HALF),
        converted(lambda x: torch.log1p(torch.exp(x.float())), HALF),
    ),
    Case(
        "HAZ18",
        converted(lambda x: x.pow(2).mean(-1), HALF),
        converted(lambda x: x.float().pow(2).mean(-1), HALF),
    ),
    Case(
        "HAZ18",
        converted(lambda x: (x * x).sum(-1, dtype=torch.float32), HALF),
        converted(lambda x: (x * X).sum(-1), X),
    ),
]
# Programs that resemble the construct of a rule, but do not have its problem.
QUIET = [
    ("HAZ13", converted(lambda x: (~(x > 0)).float(), X)),
    ("HAZ14", converted(lambda x: (~(x > 0)).float(), INDEX)),
    ("HAZ16", converted(Call(lambda x: torch.relu(x @ x.mT) * torch.relu(x @ x.mT)), HALF)),
    ("HAZ20", by_hand(_transposed_convolution((4, 4)))),
    ("HAZ28", converted(lambda x: (x > 0).sum(), X)),
    ("HAZ29", converted(lambda x: (x != 1).int().cumsum(1), INDEX)),
    ("HAZ30", converted(_route, X)),
    ("HAZ30", converted(lambda x: torch.histc(x, 4, 0, 3), X)),
    ("HAZ47", converted(States((1, 4096, 4), write=add_whole), X)),
    ("HAZ48", converted(States((2, 4), (2, 4), (2, 4), write=add_whole), X)),
    ("HAZ51", converted(nn.Sequential(nn.RMSNorm(8), nn.Sigmoid(), nn.ReLU()).half(), HALF)),
    ("HAZ52", converted(nn.Embedding(8, 4), INDEX)),
    ("HAZ52", converted(Buffer(lambda i, t: t[i[:, 1] - i[:, 0]], torch.ones(8, 4)), INDEX)),
    ("HAZ52", converted(lambda mask, i: mask[i[:, 0]], X > 0, INDEX)),
]
