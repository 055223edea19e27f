"""RoPE against complex multiplication and against rotary embeddings of transformers."""

import pytest
import torch
from exported import FLOATS, close, dims, exports
from generated_examples import examples

from coreai_torch.composite_ops import RoPE

BATCH, HEADS, SEQ, EMBED = 2, 3, 5, 16
HIDDEN = {"hidden_size": HEADS * EMBED, "num_attention_heads": HEADS}
WHERE = ["start", "ids", "shared ids", "[]", "[1]", "[batch]", "[batch, 1]"]
POSITIONS = torch.tensor([[0, 1, 2, 3, 4], [7, 8, 9, 40, 41]])


def modeling(name):
    return pytest.importorskip(f"transformers.models.{name}.modeling_{name}")


def rotary_embedding(name, class_name, **options):
    """Return the module of a model in transformers, and its rotary embedding."""
    module = modeling(name)
    config = getattr(pytest.importorskip("transformers"), f"{class_name}Config")(**options)
    return module, getattr(module, f"{class_name}RotaryEmbedding")(config)


@pytest.fixture
def x():
    torch.manual_seed(0)
    return torch.randn(BATCH, HEADS, SEQ, EMBED)


def rotated_reference(x, positions, freqs, width, interleaved):
    """Rotate each pair by complex multiplication in float64; positions are `[batch, seq]`."""
    head, tail = x[..., :width].double(), x[..., width:].double()
    pairs = head.unflatten(-1, (-1, 2) if interleaved else (2, -1))
    real, imaginary = pairs.unbind(-1 if interleaved else -2)
    angles = positions.double()[..., None] * freqs.double()
    angles = angles.reshape(angles.shape[0], *[1] * (x.dim() - 3), *angles.shape[1:])
    result = torch.complex(real, imaginary) * torch.polar(torch.ones_like(angles), angles)
    pairs = torch.stack((result.real, result.imag), -1 if interleaved else -2)
    return torch.cat((pairs.flatten(-2), tail), -1).to(x.dtype)


@examples(
    200,
    lambda st: {
        "interleaved": st.booleans(),
        "dims": st.sampled_from([None, 2, 4, 6, 8, 20]),
        "base": st.sampled_from([1e4, 5e5, 10.0]),
        "scale": st.sampled_from([1.0, 0.25, 2.0]),
        "middle": st.sampled_from([(), (3,), (2, 2)]),
        "own_freqs": st.booleans(),
        "where": st.sampled_from(
            ["start", "ids", "shared ids", "[]", "[1]", "[batch]", "[batch, 1]"]
        ),
        "seed": st.integers(0, 1000),
    },
)
def test_rotates_every_pair(interleaved, dims, base, scale, middle, own_freqs, where, seed):
    torch.manual_seed(seed)
    x = torch.randn(2, *middle, 5, 8)
    width = 8 if dims is None else min(dims, 8)
    freqs = torch.rand(width // 2) if own_freqs else None
    offsets = torch.randint(0, 50, (2, 1))
    ids = torch.randint(0, 50, (2, 5))
    given_by = {
        "start": ({}, torch.arange(5).expand(2, 5) * scale),
        "ids": ({"position_ids": ids}, ids),
        "shared ids": ({"position_ids": ids[0]}, ids[:1]),
        "[]": ({"offset": offsets[0, 0]}, (offsets[:1] + torch.arange(5)) * scale),
        "[1]": ({"offset": offsets[0]}, (offsets[:1] + torch.arange(5)) * scale),
        "[batch]": ({"offset": offsets[:, 0]}, (offsets + torch.arange(5)) * scale),
        "[batch, 1]": ({"offset": offsets}, (offsets + torch.arange(5)) * scale),
    }
    arguments, positions = given_by[where]
    default = 1 / base ** (torch.arange(width // 2).double() / (width // 2))
    expected = rotated_reference(
        x, positions, default if freqs is None else freqs, width, interleaved
    )
    rope = RoPE(scale=scale, base=base, dims=dims, interleaved=interleaved)
    # An angle near 100 has a float32 rounding error of 100 * 2 ** -24 = 6e-6, twice per pair.
    torch.testing.assert_close(rope(x, freqs=freqs, **arguments), expected, rtol=1e-5, atol=2e-5)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize(
    ("name", "class_name", "options"),
    [("llama", "Llama", HIDDEN), ("gemma", "Gemma", {"head_dim": EMBED})],
    ids=["llama", "gemma"],
)
def test_cos_and_sin_are_bitwise_equal_to_llama_and_gemma(name, class_name, options, dtype, x):
    model, embedding = rotary_embedding(name, class_name, **options)
    cos, sin = embedding(x.to(dtype), POSITIONS)
    expected, _ = model.apply_rotary_pos_emb(x.to(dtype), x.to(dtype), cos, sin)
    rope = RoPE()
    assert torch.equal(rope(x.to(dtype), cos, sin), expected)
    half = EMBED // 2
    assert torch.equal(rope(x.to(dtype), cos[..., :half], sin[..., :half]), expected)
    if dtype == torch.float32:
        close(rope(x, position_ids=POSITIONS), expected)


@pytest.mark.parametrize("dtype", FLOATS)
def test_computed_angles_round_once(dtype, x):
    narrow = x.to(dtype)
    exact = RoPE()(narrow.float(), position_ids=POSITIONS).to(dtype)
    assert torch.equal(RoPE()(narrow, position_ids=POSITIONS), exact)


@pytest.mark.parametrize(
    ("name", "class_name"), [("gpt_neox", "GPTNeoX"), ("phi", "Phi")], ids=["neox", "phi"]
)
def test_dims_equals_partial_rotation_of_neox_and_phi(name, class_name, x):
    model, embedding = rotary_embedding(name, class_name, **HIDDEN)
    cos, sin = embedding(x, POSITIONS)
    rotated = cos.shape[-1]
    assert 0 < rotated < EMBED
    expected, _ = model.apply_rotary_pos_emb(x[..., :rotated], x[..., :rotated], cos, sin)
    expected = torch.cat((expected, x[..., rotated:]), -1)
    rope = RoPE(dims=rotated)
    close(rope(x, position_ids=POSITIONS), expected)
    close(rope(x, cos, sin), expected)


@pytest.mark.parametrize("rotated", [8, EMBED])
def test_interleaved_equals_gptj(rotated, x):
    gptj = modeling("gptj")
    table = gptj.create_sinusoidal_positions(64, rotated)[POSITIONS]
    sin, cos = table.split(rotated // 2, -1)
    by_token = x.transpose(1, 2)
    expected = gptj.apply_rotary_pos_emb(by_token[..., :rotated], sin, cos).transpose(1, 2)
    expected = torch.cat((expected, x[..., rotated:]), -1)
    rope = RoPE(dims=rotated, interleaved=True)
    close(rope(x, position_ids=POSITIONS), expected)
    close(rope(x, cos, sin), expected)
    twice = [t.repeat_interleave(2, -1) for t in (cos, sin)]
    close(rope(x, *twice), expected)


def test_scale_and_freqs_equal_transformers_scaling(x):
    def expected(parameters):
        llama, embedding = rotary_embedding("llama", "Llama", **HIDDEN, rope_parameters=parameters)
        cos, sin = embedding(x, torch.arange(3, 3 + SEQ)[None])
        return llama.apply_rotary_pos_emb(x, x, cos, sin)[0], embedding.inv_freq

    linear, _ = expected({"rope_type": "linear", "factor": 4.0, "rope_theta": 1e4})
    close(RoPE(scale=0.25)(x, offset=torch.tensor(3)), linear)
    llama3, freqs = expected(
        {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 64,
            "rope_theta": 5e5,
        }
    )
    close(RoPE()(x, freqs=freqs, offset=torch.tensor(3)), llama3)


def test_cos_and_sin_override_the_rest_and_ids_override_offset(x):
    cos, sin = torch.randn(2, BATCH, SEQ, EMBED // 2).unbind()
    alone = RoPE()(x, cos, sin)
    rest = {"position_ids": POSITIONS, "freqs": torch.ones(8), "offset": torch.tensor(9)}
    assert torch.equal(RoPE(scale=3.0, base=7.0)(x, cos, sin, **rest), alone)
    ids = RoPE(scale=3.0)(x, position_ids=POSITIONS)
    assert torch.equal(RoPE(scale=3.0)(x, position_ids=POSITIONS, offset=torch.tensor(9)), ids)


@pytest.mark.parametrize(
    "shape", [(SEQ, 8), (1, SEQ, 8), (BATCH, SEQ, 8), (BATCH, 1, SEQ, 8), (8,)]
)
def test_shapes_of_cos_and_sin(shape, x):
    angles = torch.randn(shape)
    full = angles if angles.dim() != 3 else angles.unsqueeze(1)
    first, second = x[..., :8], x[..., 8:]
    cos, sin = full.cos(), full.sin()
    expected = torch.cat((first * cos - second * sin, second * cos + first * sin), -1)
    close(RoPE()(x, angles.cos(), angles.sin()), expected)


@pytest.mark.parametrize("interleaved", [False, True])
def test_full_width_tables_may_differ_within_a_pair(interleaved, x):
    cos, sin = torch.randn(2, BATCH, SEQ, EMBED).unbind()
    if interleaved:
        swapped = modeling("gptj").rotate_every_two(x)
    else:
        swapped = modeling("llama").rotate_half(x)
    expected = x * cos[:, None] + swapped * sin[:, None]
    close(RoPE(interleaved=interleaved)(x, cos, sin), expected)


def case(name):
    """Return the arguments as a function of batch and sequence length, and their dynamic axes."""
    batch, seq = dims("batch", "seq")
    inputs = {
        "start": lambda b, s: (),
        "offset": lambda b, s: (None, None, None, None, torch.full((b, 1), 7)),
        "offset for all": lambda b, s: (None, None, None, None, torch.tensor([7])),
        "ids": lambda b, s: (None, None, torch.arange(b * s).reshape(b, s)),
        "shared ids": lambda b, s: (None, None, torch.arange(s), torch.rand(4)),
        "tables": lambda b, s: (torch.randn(b, s, 4), torch.randn(b, s, 4)),
    }[name]
    axes = {
        "start": (),
        "offset": (None, None, None, None, {0: batch}),
        "offset for all": (None, None, None, None, {}),
        "ids": (None, None, {0: batch, 1: seq}),
        "shared ids": (None, None, {0: seq}, {}),
        "tables": ({0: batch, 1: seq}, {0: batch, 1: seq}),
    }[name]
    return lambda b, s: (torch.randn(b, 3, s, 12), *inputs(b, s)), ({0: batch, 2: seq}, *axes)


@pytest.mark.parametrize(
    ("name", "strict"),
    [
        ("start", False),
        ("offset", False),
        ("offset", True),
        ("offset for all", False),
        ("ids", False),
        ("ids", True),
        ("shared ids", False),
        ("tables", False),
        ("tables", True),
    ],
)
def test_exports_with_dynamic_batch_and_sequence(name, strict):
    inputs, axes = case(name)
    rope = RoPE(scale=0.5, dims=8, interleaved=strict)
    others = (inputs(1, 1), inputs(4, 9))
    exports(rope, inputs(2, 5), *others, dynamic_shapes=axes, strict=strict)


@pytest.mark.parametrize("interleaved", [False, True])
def test_exports_a_static_decode_step_in_float16(interleaved):
    rope = RoPE(interleaved=interleaved)
    inputs = (torch.randn(1, 3, 1, 8).half(), None, None, None, None, torch.tensor(5))
    exports(rope, inputs)


def test_attributes_belong_to_the_instance():
    rope = RoPE(scale=2.0, base=10.0, dims=4, interleaved=True)
    attributes = {"scale": 2.0, "base": 10.0, "dims": 4, "interleaved": True, "version": 1}
    assert vars(rope).items() >= attributes.items()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"cos": torch.ones(5, 8)}, "only one of cos and sin"),
        ({"cos": torch.ones(5, 6), "sin": torch.ones(5, 6)}, r"cos is \[5, 6\].* 8 or 16"),
        ({"cos": torch.ones(4, 8), "sin": torch.ones(4, 8)}, r"cos is \[4, 8\]"),
        ({"cos": torch.ones(5, 8).long(), "sin": torch.ones(5, 8)}, "cos is torch.int64"),
        ({"position_ids": torch.ones(4)}, r"position_ids is \[4\].* seq is 5"),
        ({"position_ids": torch.ones(3, 5)}, r"position_ids is \[3, 5\].* batch is 2"),
        ({"position_ids": torch.ones(2, 1, 5)}, r"position_ids is \[2, 1, 5\]"),
        ({"offset": torch.ones(3)}, r"offset is \[3\]"),
        ({"offset": torch.ones(2, 5)}, r"offset is \[2, 5\]"),
        ({"freqs": torch.ones(16)}, r"freqs is \[16\].* embed/2 is 8"),
    ],
)
def test_wrong_argument_raises(arguments, message, x):
    with pytest.raises(ValueError, match=message):
        RoPE()(x, **arguments)


def test_wrong_option_or_input_raises():
    with pytest.raises(ValueError, match="dims is 3"):
        RoPE(dims=3)
    with pytest.raises(ValueError, match="base is 0"):
        RoPE(base=0)
    with pytest.raises(ValueError, match="cannot pair all 5 features"):
        RoPE()(torch.ones(1, 2, 5))
    with pytest.raises(ValueError, match=r"input is \[2, 6\]"):
        RoPE()(torch.ones(2, 6))
    with pytest.raises(ValueError, match=r"input is torch.int64"):
        RoPE()(torch.ones(1, 2, 6).long())
