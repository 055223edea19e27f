"""The public and private names of `composite_ops` that other packages import."""

import inspect

import pytest
import torch

from coreai_torch import composite_ops
from coreai_torch.composite_ops._gather_mm import _gather
from coreai_torch.composite_ops._sdpa import scaled_dot_product_attention


def test_public_names():
    names = {"GatedDeltaUpdate", "GatherMM", "RMSNorm", "RMSNormImpl", "RoPE", "SDPA"}
    assert set(composite_ops.__all__) == names
    assert all(issubclass(getattr(composite_ops, name), torch.nn.Module) for name in names)


def test_functional_forms():
    x = torch.randn(3, 4)
    assert torch.equal(_gather(x, torch.tensor([2, 0])), x[[2, 0]])
    x = torch.randn(1, 1, 2, 4)
    assert scaled_dot_product_attention(x, x, x).shape == x.shape


@pytest.mark.parametrize(
    ("name", "options", "arguments"),
    [
        ("RMSNormImpl", "eps=1e-05", "input scale"),
        ("RMSNorm", "dim eps=1e-05 n_heads=None", "x"),
        (
            "RoPE",
            "scale=1.0 base=10000.0 dims=None interleaved=False _use_hf_impl=False",
            "input cos=None sin=None position_ids=None freqs=None offset=None",
        ),
        (
            "SDPA",
            "scale=None is_causal=False window_size=0 _use_hf_impl=False",
            "query key value attn_mask=None sinks=None",
        ),
        ("GatherMM", "num_batch_axes=0", "lhs rhs lhs_indices=None rhs_indices=None"),
        ("GatedDeltaUpdate", "use_qk_l2_norm=True", "query key value g beta initial_state"),
    ],
)
def test_signatures(name, options, arguments):
    def signature(function):
        parameters = list(inspect.signature(function).parameters.values())[1:]
        return " ".join(
            p.name if p.default is p.empty else f"{p.name}={p.default}" for p in parameters
        )

    module = getattr(composite_ops, name)
    assert signature(module.__init__) == options
    assert signature(module.forward) == arguments
