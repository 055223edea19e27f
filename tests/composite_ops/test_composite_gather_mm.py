"""GatherMM against loops over single matrices and Mixtral's experts."""

import pytest
import torch
from exported import FLOATS, close, dims, exports
from generated_examples import examples

from coreai_torch.composite_ops import GatherMM
from coreai_torch.composite_ops._gather_mm import _gather


def by_hand(x, indices, num_batch_axes):
    """Gather one index at a time."""
    flat = [x.select(num_batch_axes, int(i)) for i in indices.reshape(-1)]
    stacked = torch.stack(flat, num_batch_axes)
    before, after = x.shape[:num_batch_axes], x.shape[num_batch_axes + 1 :]
    return stacked.reshape(*before, *indices.shape, *after)


@examples(
    60,
    lambda st: {
        "num_batch_axes": st.integers(0, 2),
        "index_shape": st.lists(st.integers(1, 3), max_size=3),
        "index_dtype": st.sampled_from([torch.int32, torch.int64]),
        "seed": st.integers(0, 1000),
    },
)
def test_gathers_both_operands(num_batch_axes, index_shape, index_dtype, seed):
    torch.manual_seed(seed)
    batch = (2, 3)[:num_batch_axes]
    lhs, rhs = torch.randn(*batch, 5, 3, 4), torch.randn(*batch, 6, 4, 2)
    left = torch.randint(5, index_shape, dtype=index_dtype)
    right = torch.randint(6, index_shape, dtype=index_dtype)
    expected = torch.matmul(by_hand(lhs, left, num_batch_axes), by_hand(rhs, right, num_batch_axes))
    out = GatherMM(num_batch_axes)(lhs, rhs, left, right)
    assert out.shape == (*batch, *index_shape, 3, 2)
    close(out, expected)
    assert torch.equal(_gather(lhs, left, num_batch_axes), by_hand(lhs, left, num_batch_axes))


@pytest.mark.parametrize("dtype", FLOATS)
def test_without_indices_equals_matmul(dtype):
    lhs, rhs = torch.randn(2, 3, 4).to(dtype), torch.randn(4, 5).to(dtype)
    assert torch.equal(GatherMM()(lhs, rhs), lhs @ rhs)
    assert _gather(lhs, None) is lhs


def test_fused_gate_and_up_has_the_documented_shape():
    lhs, rhs = torch.randn(2, 3, 1, 1, 4), torch.randn(2, 6, 4, 5)
    experts = torch.randint(6, (2, 3, 2))
    out = GatherMM(num_batch_axes=1)(lhs, rhs, rhs_indices=experts)
    assert out.shape == (2, 2, 3, 2, 1, 5)
    close(out[1, 1, 2, 0, 0], lhs[1, 2, 0, 0] @ rhs[1, experts[1, 2, 0]])


class Experts(torch.nn.Module):
    """Mixtral's experts for all tokens at once, written with GatherMM."""

    def __init__(self, experts):
        super().__init__()
        width = experts.intermediate_dim
        fused = experts.gate_up_proj.detach().unflatten(1, (2, width)).permute(1, 0, 3, 2)
        self.gate_up = torch.nn.Parameter(fused.contiguous())
        self.down = torch.nn.Parameter(experts.down_proj.detach().mT.contiguous())
        self.project_in, self.project_out = GatherMM(num_batch_axes=1), GatherMM()

    def forward(self, x, index, weight):
        gate, up = self.project_in(x[:, None, None], self.gate_up, rhs_indices=index)
        hidden = torch.nn.functional.silu(gate) * up
        out = self.project_out(hidden, self.down, rhs_indices=index)
        return (out.squeeze(-2) * weight.unsqueeze(-1)).sum(1)


@pytest.fixture(scope="module")
def mixtral():
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    library = pytest.importorskip("transformers.models.mixtral.modeling_mixtral")
    torch.manual_seed(0)
    config = transformers.MixtralConfig(
        hidden_size=16, intermediate_size=24, num_local_experts=5, num_experts_per_tok=2
    )
    experts, router = library.MixtralExperts(config), library.MixtralTopKRouter(config)
    for parameter in (*experts.parameters(), *router.parameters()):
        torch.nn.init.normal_(parameter, std=0.3)
    return experts, router


def test_equals_mixtral_experts(mixtral):
    experts, router = mixtral
    x = torch.randn(11, 16)
    with torch.no_grad():
        _, weight, index = router(x)
        close(Experts(experts)(x, index, weight), experts(x, index, weight))


@pytest.mark.parametrize("strict", [False, True])
def test_exports_with_a_dynamic_number_of_tokens(mixtral, strict):
    experts, router = mixtral
    (tokens,) = dims("tokens")

    def inputs(n):
        x = torch.randn(n, 16)
        _, weight, index = router(x)
        return x, index.detach(), weight.detach()

    dynamic = ({0: tokens},) * 3
    module = Experts(experts)
    exports(module, inputs(5), inputs(1), inputs(9), dynamic_shapes=dynamic, strict=strict)


def test_exports_both_indices_static():
    indices = torch.tensor([[0, 2], [1, 1]], dtype=torch.int32)
    exports(GatherMM(), (torch.randn(3, 2, 4), torch.randn(3, 4, 5), indices, indices))


def test_attributes_belong_to_the_instance():
    assert vars(GatherMM(1)).items() >= {"num_batch_axes": 1, "version": 1}.items()


@pytest.mark.parametrize(
    ("num_batch_axes", "lhs", "rhs", "index", "message"),
    [
        (3, (2, 3), (4, 3, 5), (2,), r"axis 3 .* operand of shape \[4, 3, 5\]"),
        (0, (2, 3), (4, 6, 5), (2,), r"lhs \[2, 3\] and rhs \[2, 6, 5\]"),
        (0, (2, 1), (4, 6, 5), (2,), r"lhs \[2, 1\] and rhs \[2, 6, 5\]"),
        (0, (3, 2, 6), (4, 6, 5), (2,), r"lhs \[3, 2, 6\] and rhs \[2, 6, 5\]"),
        (0, (6,), (4, 6, 5), (2,), r"lhs \[6\] and rhs"),
    ],
)
def test_wrong_shape_raises(num_batch_axes, lhs, rhs, index, message):
    with pytest.raises(ValueError, match=message):
        GatherMM(num_batch_axes)(
            torch.ones(lhs), torch.ones(rhs), rhs_indices=torch.zeros(index, dtype=torch.int64)
        )


def test_wrong_dtype_or_axis_raises():
    lhs, rhs = torch.ones(2, 3), torch.ones(4, 3, 5)
    with pytest.raises(ValueError, match=r"indices is torch.float32, allowed are torch.int32"):
        GatherMM()(lhs, rhs, rhs_indices=torch.zeros(2))
    with pytest.raises(ValueError, match=r"lhs is torch.float16 and rhs torch.float32"):
        GatherMM()(lhs.half(), rhs)
    with pytest.raises(ValueError, match="num_batch_axes is -1"):
        GatherMM(-1)
