"""`compress`: errors, sizes and report of each scheme, and conversion with eager's numbers."""

import copy
import math

import pytest
import torch
from conversion import checked, close, converted, ran, saved_bytes
from torch import nn

import coreai_torch
from coreai_torch import compress
from coreai_torch.errors import ConversionError

FEW, MANY = 128, 256
COUNT = 2 * FEW * MANY


def linears(dtype=torch.float32):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(FEW, MANY), nn.ReLU(), nn.Linear(MANY, FEW))
    return model.eval().to(dtype)


def x(dtype=torch.float32):
    return torch.randn(4, FEW, generator=torch.Generator().manual_seed(1)).to(dtype)


# Arguments, maximum bits per element, maximum relative error for uniformly distributed weights.
CALLS = {
    "int8": (("int8",), 8.25, 0.005),
    "int8, blocks of 32": (("int8", 32), 9, 0.005),
    "int6": (("int6",), 6.25, 0.02),
    "int4": (("int4",), 4.25, 0.085),
    "int4, blocks of 32": (("int4", 32), 5, 0.08),
    "int3": (("int3", 32), 4, 0.19),
    "int2": (("int2", 32), 3, 0.47),
    "uint8": (("uint8",), 8.32, 0.005),
    "uint4, blocks of 32": (("uint4", 32), 5.13, 0.075),
    "uint3": (("uint3", 32), 4.26, 0.17),
    "uint2": (("uint2", 32), 3.07, 0.42),
    "fp8": (("fp8",), 8.25, 0.03),
    "fp8e5m2": (("fp8e5m2",), 8.25, 0.06),
    "fp4": (("fp4",), 4.26, 0.14),
    "fp4, blocks of 16": (("fp4", 16), 4.51, 0.14),
    "palettize8": (("palettize8",), 8.3, 0.006),
    "palettize6": (("palettize6",), 6.1, 0.02),
    "palettize4": (("palettize4",), 4.1, 0.07),
    "palettize4, groups of 16": (("palettize4", 16), 4.3, 0.07),
    "palettize3": (("palettize3",), 3.1, 0.13),
    "palettize2": (("palettize2",), 2.1, 0.26),
    "palettize1": (("palettize1",), 1.1, 0.51),
    "sparse50": (("sparse50",), 17.1, 0.36),
    "sparse75": (("sparse75",), 9.1, 0.66),
    "sparse50+palettize4": (("sparse50+palettize4",), 3.1, 0.37),
    "sparse75+palettize2": (("sparse75+palettize2",), 1.6, 0.67),
}
ALWAYS = ("int4, blocks of 32", "uint4, blocks of 32", "fp4", "palettize4", "sparse50+palettize4")


def call(model, scheme, block_size=None, **more):
    return compress(model, scheme, block_size=block_size, **more)


@pytest.mark.parametrize("name", CALLS)
def test_reported_error_and_bits(name):
    arguments, bits, error = CALLS[name]
    plain, model = linears(), linears()
    report = call(model, *arguments)
    assert report.model is model
    assert [row.name for row in report.rows] == ["0.weight", "2.weight"]
    for row, index in zip(report.rows, (0, 2), strict=True):
        layer, original = model[index], plain[index].weight.detach()
        want = float((layer.weight - original).norm() / original.norm())
        assert math.isclose(row.error, want, rel_tol=1e-3)
        assert row.error < error
        assert math.isclose(row.snr, -20 * math.log10(row.error))
        assert row.bits <= bits
        assert row.bytes == math.ceil(row.bits * COUNT / 2 / 8)
        assert not layer.weight.requires_grad


@pytest.mark.parametrize(
    "name", [n if n in ALWAYS else pytest.param(n, marks=pytest.mark.slow, id=n) for n in CALLS]
)
def test_saved_bytes_equal_reported_bytes(name):
    model = linears()
    report = call(model, *CALLS[name][0])
    program = checked(model, x())
    biases = 4 * (FEW + MANY)
    assert report.bytes <= saved_bytes(program) - biases < report.bytes + 5_000


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=["f16", "bf16"])
@pytest.mark.parametrize(
    "scheme", ["int4", "uint4", "fp8", "fp4", "palettize4", "sparse50", "sparse50+palettize4"]
)
def test_half_precision(scheme, dtype):
    model = linears(dtype)
    report = compress(model, scheme)
    assert model[0].weight.dtype == dtype
    assert report["0.weight"].bytes_before == 2 * FEW * MANY
    assert model(x(dtype)).dtype == dtype


def test_half_precision_converts():
    torch.manual_seed(0)
    model = nn.Embedding(256, 64).half()
    compress(model, "int4", block_size=32)
    program = checked(model, torch.tensor([[0, 7, 255]]))
    assert saved_bytes(program) < 256 * 64 * (4 + 16 / 32) / 8 + 4_000


# Which layers are compressed, and which are left unchanged ---------------------------------------


class Zoo(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(96, 64)
        self.conv = nn.Conv1d(64, 64, 3, padding=1)
        self.wide = nn.Conv2d(64, 64, 3, groups=2, padding=1)
        self.up = nn.ConvTranspose2d(64, 32, 2, stride=2)
        self.attention = nn.MultiheadAttention(64, 4, batch_first=True)
        self.recurrent = nn.GRU(64, 64, batch_first=True)
        self.odd = nn.Linear(63, 64)
        self.small = nn.Linear(64, 4)
        self.table = nn.Parameter(torch.randn(64, 64))
        self.head = nn.Linear(64, 96, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        x = self.embed(tokens)
        x = self.conv(x.transpose(1, 2)).transpose(1, 2)
        x = self.attention(x, x, x, need_weights=False)[0]
        y = self.up(self.wide(x.transpose(1, 2)[:, :, None])).mean((2, 3))
        x = x @ self.table + self.small(self.odd(x[..., :63])).mean() + y.mean()
        return self.head(x)


def zoo():
    torch.manual_seed(0)
    return Zoo().eval()


TOKENS = torch.tensor([[0, 5, 95, 17]])


@pytest.mark.parametrize("scheme", ["int4", pytest.param("fp8", marks=pytest.mark.slow)])
def test_every_layer_type(scheme):
    model = zoo()
    report = compress(model, scheme, block_size=32)
    done = {row.name for row in report.compressed}
    layers = {"embed", "conv", "wide", "up", "attention.out_proj", "head"}
    assert done == {f"{layer}.weight" for layer in layers} | {"attention.in_proj_weight"}
    why = {row.name: row.why for row in report.left_alone}
    assert why["odd.weight"] == "indivisible: 63 on axis 1 in blocks of 32"
    assert why["small.weight"] == "too small: 256 elements"
    assert why["table"] == "Zoo layers are not compressed"
    assert why["recurrent.weight_ih_l0"] == "GRU layers are not compressed"
    program = checked(model, TOKENS)
    unchanged = sum(row.bytes for row in report.left_alone if "recurrent" not in row.name)
    total = sum(row.bytes for row in report.compressed) + unchanged
    assert total < saved_bytes(program) < total + 16_000


def test_tied_weights_are_compressed_once():
    model = zoo()
    report = compress(model, "int8")
    first, second = report["embed.weight"], report["head.weight"]
    assert first.bytes == 96 * 64 + 96 * 4
    assert (second.bytes, second.why) == (0, "tied to embed.weight")
    assert torch.equal(model.embed.weight, model.head.weight)
    data = "parametrizations.weight.0.quantized_data"
    tensors = model.state_dict(keep_vars=True)
    assert tensors[f"embed.{data}"] is tensors[f"head.{data}"]


def test_weight_tied_to_a_skipped_weight_is_skipped():
    report = compress(zoo(), "int8", skip="head")
    assert report["embed.weight"].why == "tied to head.weight: in skip"
    assert report["head.weight"].why == "tied to embed.weight, tied to head.weight: in skip"


@pytest.mark.parametrize(
    "skip",
    [
        "attention",
        "attention*",
        ["attention.in_proj_weight", "attention.out_proj"],
        nn.MultiheadAttention,
        lambda path, module: path.startswith("attention"),
    ],
    ids=["path", "pattern", "paths", "type", "function"],
)
def test_skip(skip):
    report = compress(zoo(), "int8", skip=skip)
    assert report["attention.in_proj_weight"].why == "in skip"
    out = report["attention.out_proj.weight"].why
    assert out is None if skip is nn.MultiheadAttention else out == "in skip"
    assert report["conv.weight"].scheme == "int8"


def test_report_says_why_a_weight_is_unchanged():
    model = linears()
    with torch.no_grad():
        model[0].weight[3, 5] = float("nan")
    model[2].double()
    report = compress(model, "int4")
    assert report["0.weight"].why == "contains a value that is not finite"
    assert report["2.weight"].why == "unsupported dtype torch.float64"
    assert compress(linears().to("meta"), "int4")["0.weight"].why.startswith("on the meta device")


def test_second_compression_changes_nothing():
    model = linears()
    compress(model, "int4")
    before = model[0].weight
    report = compress(model, "int8")
    assert not report.compressed
    assert report["0.weight"].why == "already parametrized (WeightDequantizeModuleParametrization)"
    assert report["2.weight"].shape == (FEW, MANY)
    assert torch.equal(model[0].weight, before)


def test_zeros_stay_zeros():
    for scheme in ("int4", "uint4", "fp8", "fp4", "palettize2", "sparse50", "sparse50+palettize2"):
        model = nn.Linear(64, 64, bias=False)
        nn.init.zeros_(model.weight)
        report = compress(model, scheme)
        assert report["weight"].error == 0
        assert not model.weight.any()


def test_sparse_keeps_the_largest_elements():
    model, plain = nn.Linear(64, 64), nn.Linear(64, 64)
    plain.load_state_dict(model.state_dict())
    compress(model, "sparse75")
    kept = model.weight != 0
    assert int(kept.sum()) == 64 * 16
    assert plain.weight.abs()[kept].min() > plain.weight.abs()[~kept].max()
    assert torch.equal(model.weight[kept], plain.weight[kept])


def test_palette_is_exact_for_few_distinct_values():
    numbers = torch.tensor([-3.0, -1.0, 0.5, 7.0])
    model = nn.Linear(64, 64)
    for off in (0.0, 1e-5):  # with noise, the intervals must be found by k-means
        with torch.no_grad():
            model.weight.copy_(numbers[torch.randint(0, 4, (64, 64))] + off * torch.rand(64, 64))
        assert compress(copy.deepcopy(model), "palettize2")["weight"].error <= off


def test_fp4_is_exact_for_representable_values():
    values = torch.tensor([0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0])
    rows = torch.stack([values, -values], 1).flatten().repeat(64, 4)
    model = nn.Linear(64, 64)
    with torch.no_grad():
        model.weight.copy_(rows * torch.tensor([2.0**-7, 1.0, 2.0**5, 3e-39]).repeat(16)[:, None])
        model.weight[3::4] = 0
    assert compress(model, "fp4")["weight"].error == 0


def test_report_prints_a_table():
    report = compress(zoo(), "int4", block_size=32)
    lines = str(report).splitlines()
    assert lines[0].split() == ["weight", "shape", "scheme", "bits", "error", "dB", "bytes", "note"]
    (row,) = [line for line in lines if line.startswith("embed.weight")]
    assert row.split()[1:4] == ["96x64", "int4", "5.00"]
    assert any("indivisible: 63 on axis 1 in blocks of 32" in line for line in lines)
    share = report.bytes / report.bytes_before
    assert f"{report.bytes:,} ({share:.1%})" in lines[-1]
    assert lines[-1].startswith("7 of 12 weights")


# Bad input ---------------------------------------------------------------------------------------


def test_unknown_scheme_lists_the_known_ones():
    for name in ("int5", "int44", "palettize5", "sparse0", "sparse100", "w4", "sparse50.int4"):
        with pytest.raises(ConversionError, match=f"unknown scheme '{name}'") as caught:
            compress(linears(), name)
        for known in ("int4", "uint8", "fp4", "palettize6", "sparse50"):
            assert known in str(caught.value)


def test_block_size_that_divides_no_weight_raises():
    model = linears()
    with pytest.raises(ConversionError, match="the block size divides no weight") as caught:
        compress(model, "int4", block_size=48)
    assert "0.weight: indivisible: 128 on axis 1 in blocks of 48" in str(caught.value)
    assert "2.weight: indivisible: 256 on axis 1 in blocks of 48" in str(caught.value)
    assert type(model[0]) is nn.Linear


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"scheme": "sparse50", "block_size": 4}, "sparse50 does not use blocks"),
        ({"scheme": "int4", "block_size": 0}, "block_size is 0, it must be at least 1"),
        ({"scheme": "int4", "skip": "lm_hed"}, "skip='lm_hed' matches no layer"),
    ],
)
def test_wrong_argument_raises(arguments, message):
    with pytest.raises(ConversionError, match=message):
        compress(linears(), **arguments)


# Memory, and a complete decoder ------------------------------------------------------------------


@pytest.mark.slow
def test_compress_then_convert():
    model = linears()
    compress(model, "int4", block_size=32)
    program = coreai_torch.convert(model, (x(),))
    close(ran(program, x()), model(x()))


PEAK = """
import resource, sys, torch
from torch import nn
from coreai_torch import compress

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10

model = nn.Sequential(*(nn.Linear(4096, 4096, bias=False) for _ in range(8)))  # 64 MB each
compress(nn.Linear(64, 64), sys.argv[1])
before = peak()
compress(model, sys.argv[1])
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["int8", "palettize4", "sparse50"])
def test_compression_does_not_copy_the_model(scheme):
    import subprocess
    import sys

    run = [sys.executable, "-c", PEAK, scheme]
    more = float(subprocess.run(run, check=True, capture_output=True, text=True).stdout)
    # Megabytes: a compressed layer twice, while its slices are concatenated, and the temporaries
    # of a 4 MB slice. The model has 512 MB.
    assert more < 256


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_transformers_conv1d_layers():
    """GPT-2 uses Conv1D layers with weights of shape [inputs, outputs]."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.GPT2Config(n_embd=64, n_layer=1, n_head=2, vocab_size=128, n_positions=32)
    model = Logits(transformers.GPT2LMHeadModel(config).eval())
    report = compress(model, "int4", block_size=32)
    layer = model.model.transformer.h[0].attn.c_attn
    assert layer.parametrizations.weight[0].scale.shape == (2, 3 * 64)
    assert report["model.lm_head.weight"].why == "tied to model.transformer.wte.weight"
    checked(model, torch.tensor([[3, 100, 0, 17]]))


def test_compressed_model_can_be_copied_and_loaded():
    model, other = linears(), linears()
    compress(model, "uint4", block_size=32)
    copied = copy.deepcopy(model)
    assert torch.equal(copied(x()), model(x()))
    nn.init.ones_(other[0].weight)
    compress(other, "uint4", block_size=32)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(x()), model(x()))


class Logits(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, tokens):
        return self.model(input_ids=tokens, use_cache=False).logits


def decoder(dtype, **sizes):
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    torch.manual_seed(0)
    config = transformers.Qwen2Config(tie_word_embeddings=True, **sizes)
    return Logits(transformers.Qwen2ForCausalLM(config).eval().to(dtype))


# transformers calls a function during tracing that warns about it.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_small_decoder_equals_eager():
    sizes = {"vocab_size": 512, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2}
    model = decoder(torch.float32, **sizes, **heads)
    report = compress(model, "int4", block_size=32)
    assert report["model.lm_head.weight"].why == "tied to model.model.embed_tokens.weight"
    assert not report.left_alone
    program = checked(model, torch.tensor([[3, 500, 0, 17]]))
    assert saved_bytes(program) < report.bytes + 40_000


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_size_of_a_compressed_half_billion_weight_decoder():
    """Use the sizes of Qwen2-0.5B, where the tied embedding is a quarter of the weights."""
    sizes = {"vocab_size": 151_936, "hidden_size": 896, "intermediate_size": 4_864}
    heads = {"num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24}
    model = decoder(torch.float16, **sizes, **heads)
    count = sum(p.numel() for p in model.parameters())
    assert 490e6 < count < 500e6
    report = compress(model, "int4", block_size=32)
    assert len(report.compressed) == 24 * 7 + 2
    assert all(row.error < 0.11 for row in report.compressed)
    program = converted(model, torch.zeros(1, 8, dtype=torch.int64))
    program.optimize()
    assert report.bytes < saved_bytes(program) < 0.30 * 2 * count
