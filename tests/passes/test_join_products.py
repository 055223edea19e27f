"""Linear layers of one tensor become one product, with plain and with compressed weights."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from passes.recognized import exported
from runtime import run
from torch import nn

import coreai_torch
from coreai_torch.compression import compress
from coreai_torch.passes.join_products import join_products

aten = torch.ops.aten
WIDTH = 32


class Attention(nn.Module):
    """The projections of grouped attention: four heads of queries, two of keys and values."""

    def __init__(self, *, bias=False, key_bias=None):
        super().__init__()
        key_bias = bias if key_bias is None else key_bias
        self.q_proj = nn.Linear(WIDTH, 64, bias=bias)
        self.k_proj = nn.Linear(WIDTH, 32, bias=key_bias)
        self.v_proj = nn.Linear(WIDTH, 32, bias=bias)

    def forward(self, x):
        parts = self.q_proj(x), self.k_proj(x), self.v_proj(x)
        return tuple(one.view(1, -1, one.shape[-1] // 16, 16).transpose(1, 2) for one in parts)


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate_proj, self.up_proj = nn.Linear(WIDTH, 96), nn.Linear(WIDTH, 96)

    def forward(self, x):
        return nn.functional.silu(self.gate_proj(x)) * self.up_proj(x)


class Adapted(Attention):
    """A LoRA adapter beside the queries, whose first layer reads the same tensor."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(WIDTH, 4, bias=False), nn.Linear(4, 64, bias=False)

    def forward(self, x):
        return self.q_proj(x) + self.b(self.a(x)), self.k_proj(x)


class Tied(nn.Module):
    """An embedding whose weight one of two layers shares."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(48, WIDTH)
        self.head, self.other = nn.Linear(WIDTH, 48, bias=False), nn.Linear(WIDTH, 48, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, x):
        rows = x + self.embedding(torch.tensor([3]))
        return self.head(rows), self.other(rows)


class Twice(nn.Module):
    """Two layers that are called again on another tensor."""

    def __init__(self):
        super().__init__()
        self.inner = Gated()

    def forward(self, x):
        return self.inner(x), self.inner(x + 1)


class Sliced(nn.Module):
    """A joined product of the model itself."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 128)

    def forward(self, x):
        y = self.qkv(x)
        parts = y[..., :64], y[..., 64:96], y[..., 96:]
        return tuple(one.view(1, -1, one.shape[-1] // 16, 16).transpose(1, 2) for one in parts)


def drawn(seed=0):
    return torch.randn(1, 5, WIDTH, generator=torch.Generator().manual_seed(seed))


def joined(model, **options):
    torch.manual_seed(0)
    program = exported(model, drawn(), dynamic_shapes=({1: torch.export.Dim("n")},))
    join_products([program], **options)
    return program


def calls(program):
    return Counter(node.target for node in program.graph.nodes if node.op == "call_function")


def assert_same(program, model):
    for got, want in zip(
        _listed(program.module()(drawn(1))), _listed(model(drawn(1))), strict=True
    ):
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5)


def _listed(value):
    return value if isinstance(value, tuple) else (value,)


@pytest.mark.parametrize(
    ("model", "products"),
    [
        (Attention(), 1),
        (Attention(bias=True), 1),
        (Attention(bias=True, key_bias=False), 1),
        (Gated(), 1),
        (Adapted(), 2),
        (Tied(), 2),
        (Twice(), 2),
        (Sliced(), 1),
    ],
    ids=lambda given: type(given).__name__,
)
@pytest.mark.parametrize("turned", [False, True])
def test_layers_of_one_tensor_are_one_product(model, products, turned):
    program = joined(model, turned=turned)
    assert calls(program)[aten.linear.default] == products
    assert_same(program, model)


def test_heads_are_moved_once_and_split_then():
    program = joined(Attention())
    found = calls(program)
    assert found[aten.view.default] == found[aten.permute.default] == 1
    assert found[aten.split_with_sizes.default] == 1
    (split,) = program.graph.find_nodes(op="call_function", target=aten.split_with_sizes.default)
    assert split.args[1:] == ([4, 2, 2], 1)


def test_the_joined_weight_replaces_its_parts():
    model = Attention()
    program = joined(model, turned=True)
    (name,) = program.state_dict
    assert name == "q_proj+k_proj+v_proj.weight"
    parts = model.q_proj.weight, model.k_proj.weight, model.v_proj.weight
    assert torch.equal(program.state_dict[name], torch.cat(parts))
    assert program.state_dict[name].t().is_contiguous()


SCHEMES = ["int8", "int4/16", "uint4/8", "int3", "palettize4", "palettize2/8", "fp8", "sparse50"]


@pytest.mark.parametrize("scheme", [*SCHEMES, "sparse50+int8", "sparse50+palettize4"])
@pytest.mark.parametrize("cls", [Attention, Gated])
def test_compressed_weights_are_joined_with_their_scales(cls, scheme):
    torch.manual_seed(1)
    model = cls().eval()
    compress(model, scheme)
    program = joined(model)
    is_apart = "+" in scheme and cls is Attention  # another number of values has its own blocks
    assert is_apart or calls(program)[aten.linear.default] == 1
    assert_same(program, model)
    converted = coreai_torch.TorchConverter().add_exported_program(program).to_coreai()
    got = run(converted, {"x": drawn(1)}).values()
    for one, want in zip(got, _listed(model(drawn(1))), strict=True):
        torch.testing.assert_close(one, want, rtol=1e-5, atol=1e-4)


def test_weights_of_different_schemes_stay_apart():
    torch.manual_seed(1)
    model = Attention().eval()
    compress(model, {"q_proj.weight": "int4/16", "v_proj.weight": "int4/16", "*": "int8"})
    program = joined(model)
    assert calls(program)[aten.linear.default] == 2
    assert {name.partition(".")[0] for name in program.state_dict} == {"q_proj+v_proj", "k_proj"}
    assert_same(program, model)


def test_programs_share_joined_weights():
    model = Attention()
    programs = [exported(model, drawn(seed)) for seed in range(2)]
    assert join_products(programs) == 2
    first, second = (next(iter(one.state_dict.values())) for one in programs)
    assert first.data_ptr() == second.data_ptr()


def test_weights_that_another_program_reads_apart_stay_apart():
    model = Attention()
    programs = [exported(model, drawn()), exported(model.q_proj, drawn())]
    assert join_products(programs) == 0
    assert calls(programs[0])[aten.linear.default] == 3


def test_a_joined_program_runs():
    model = Attention(bias=True).half()
    x = drawn(1).half()
    program = exported(model, drawn().half(), dynamic_shapes=({1: torch.export.Dim("n")},))
    join_products([program])
    converted = coreai_torch.TorchConverter().add_exported_program(program).to_coreai()
    for got, want in zip(run(converted, {"x": x}).values(), model(x), strict=True):
        # The Linux runtime adds up float16 products in float16.
        torch.testing.assert_close(got, want, rtol=2e-3, atol=2e-3)
