"""RMSNorm against torch, and against Llama and Gemma of transformers."""

import pytest
import torch
from exported import FLOATS, NARROW, close, dims, exports
from generated_examples import examples

from coreai_torch.composite_ops import RMSNorm, RMSNormImpl


@examples(
    60,
    lambda st: {
        "shape": st.lists(st.integers(1, 5), min_size=1, max_size=4),
        "eps": st.sampled_from([0.0, 1e-6, 1e-5, 0.1]),
        "seed": st.integers(0, 1000),
    },
)
def test_equals_torch_rms_norm(shape, eps, seed):
    torch.manual_seed(seed)
    x, scale = torch.randn(shape), torch.randn(shape[-1])
    expected = torch.nn.functional.rms_norm(x, shape[-1:], scale, eps)
    close(RMSNormImpl(eps=eps)(x, scale), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scale_of_input_dtype_is_bitwise_equal_to_llama(dtype):
    torch.manual_seed(0)
    library = pytest.importorskip("transformers.models.llama.modeling_llama")
    llama = library.LlamaRMSNorm(64, eps=1e-6).to(dtype)
    torch.nn.init.normal_(llama.weight)
    x = torch.randn(2, 7, 64).to(dtype) * 5
    ours = RMSNorm(64, eps=1e-6).to(dtype)
    ours.load_state_dict({"weight": llama.weight})
    assert torch.equal(ours(x), llama(x))


@pytest.mark.parametrize("dtype", FLOATS)
def test_float32_scale_is_bitwise_equal_to_gemma(dtype):
    torch.manual_seed(1)
    library = pytest.importorskip("transformers.models.gemma.modeling_gemma")
    gemma = library.GemmaRMSNorm(64, eps=1e-6)
    torch.nn.init.normal_(gemma.weight)
    x = torch.randn(2, 7, 64).to(dtype) * 5
    out = RMSNormImpl(eps=1e-6)(x, 1.0 + gemma.weight)
    assert out.dtype == dtype
    assert torch.equal(out, gemma(x))


def test_rounding_before_or_after_the_scale_differs():
    torch.manual_seed(2)
    x, scale = torch.randn(4, 64).half(), torch.randn(64).half()
    norm = RMSNormImpl()
    assert not torch.equal(norm(x, scale), norm(x, scale.float()))


@pytest.mark.parametrize("dtype", NARROW)
@pytest.mark.parametrize("scale_dtype", FLOATS)
def test_result_has_the_input_dtype(dtype, scale_dtype):
    out = RMSNormImpl()(torch.ones(2, 8, dtype=dtype), torch.full((8,), 2.0, dtype=scale_dtype))
    close(out, torch.full((2, 8), 2.0, dtype=dtype))


def test_statistics_do_not_overflow_float16():
    x = torch.full((1, 16), 6e4, dtype=torch.float16)
    close(RMSNormImpl()(x, torch.ones(16).half()), torch.ones(1, 16).half())


def test_scale_per_head():
    torch.manual_seed(3)
    norm = RMSNorm(8, n_heads=3)
    torch.nn.init.normal_(norm.weight)
    assert norm.weight.shape == (3, 1, 8)
    x = torch.randn(2, 3, 5, 8)
    heads = [torch.nn.functional.rms_norm(x[:, h], (8,), norm.weight[h, 0], 1e-5) for h in range(3)]
    close(norm(x), torch.stack(heads, 1))


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("n_heads", [None, 3])
def test_exports_with_dynamic_batch_and_sequence(strict, n_heads):
    batch, seq = dims("batch", "seq")
    exports(
        RMSNorm(8, n_heads=n_heads),
        (torch.randn(2, 3, 5, 8),),
        (torch.randn(1, 3, 1, 8),),
        (torch.randn(4, 3, 9, 8),),
        dynamic_shapes=({0: batch, 2: seq},),
        strict=strict,
    )


@pytest.mark.parametrize("scale_dtype", [torch.float16, torch.float32])
def test_exports_static_in_float16(scale_dtype):
    exports(RMSNormImpl(), (torch.randn(2, 8).half(), torch.randn(8).to(scale_dtype)))


def test_attributes_belong_to_the_instance():
    assert vars(RMSNormImpl(eps=0.5)).items() >= {"eps": 0.5, "axes": -1, "version": 1}.items()
    inner = [m for m in RMSNorm(4, eps=0.25).modules() if isinstance(m, RMSNormImpl)]
    assert [m.eps for m in inner] == [0.25]


def test_wrong_argument_raises_with_its_value():
    norm = RMSNormImpl()
    with pytest.raises(ValueError, match=r"scale is \[7\].*\[2, 8\]"):
        norm(torch.ones(2, 8), torch.ones(7))
    with pytest.raises(ValueError, match=r"scale is \[3, 1, 8\].*\[2, 8\]"):
        norm(torch.ones(2, 8), torch.ones(3, 1, 8))
    with pytest.raises(ValueError, match=r"input is torch.float64, allowed are torch.float32"):
        norm(torch.ones(2, 8).double(), torch.ones(8))
    with pytest.raises(ValueError, match="eps is -1"):
        RMSNormImpl(eps=-1)
    with pytest.raises(ValueError, match="dim=0"):
        RMSNorm(0)
    with pytest.raises(ValueError, match="n_heads=0"):
        RMSNorm(4, n_heads=0)
