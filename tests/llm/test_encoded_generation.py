"""Generation with Whisper and T5: the source is encoded once, the tokens equal `generate`."""

from __future__ import annotations

import pytest
import torch
from decoders import greedy, prompt

from coreai_torch import llm
from coreai_torch.errors import ConversionError, GenerationError

RECOGNIZE = pytest.mark.parametrize("recognize", [True, False], ids=["recognized", "plain"])


def t5():
    import transformers

    torch.manual_seed(0)
    config = transformers.T5Config(
        vocab_size=256,
        d_model=64,
        d_kv=16,
        d_ff=128,
        num_layers=2,
        num_heads=4,
        decoder_start_token_id=3,
        pad_token_id=0,
        eos_token_id=None,
        initializer_factor=3.0,  # with 1 the same token repeats
    )
    return transformers.T5ForConditionalGeneration(config).eval()


def whisper():
    import transformers

    torch.manual_seed(0)
    config = transformers.WhisperConfig(
        vocab_size=256,
        num_mel_bins=16,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=4,
        decoder_attention_heads=4,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_source_positions=30,
        max_target_positions=64,
        init_std=0.2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=255,
        decoder_start_token_id=3,
        begin_suppress_tokens=None,
        suppress_tokens=None,
    )
    return transformers.WhisperForConditionalGeneration(config).eval()


def features(seed, batch=1):
    return torch.randn(batch, 16, 60, generator=torch.Generator().manual_seed(seed))


@pytest.mark.slow
@RECOGNIZE
def test_t5_tokens_equal_transformers(recognize, tmp_path):
    model = t5()
    asset = llm.convert(model, 48, recognize=recognize).save_asset(tmp_path / "t5.aimodel")
    generator = llm.Generator(asset)
    seen = set()
    for length in (1, 2, 7, 48):
        source = prompt(length)
        want = greedy(model, source, 32)
        seen |= set(want.flatten().tolist())
        assert torch.equal(generator.generate(source, 32), want), length
    assert len(seen) > 4


@pytest.mark.slow
def test_padded_source_batch_with_decoder_prompt():
    model = t5()
    generator = llm.Generator(llm.convert(model, 48, batch_size=2))
    source = prompt(9, 2)
    mask = torch.ones_like(source)
    mask[0, 5:] = 0
    start = prompt(4, 2)
    start[:, 0] = 3  # transformers prepends the start token if it is missing
    with torch.no_grad():
        want = model.generate(
            source,
            attention_mask=mask,
            decoder_input_ids=start,
            max_new_tokens=32,
            do_sample=False,
        )
    got = generator.generate(source, 32, attention_mask=mask, decoder_input_ids=start)
    assert torch.equal(got, want)
    with pytest.raises(GenerationError, match="49 tokens, the encoder takes 48"):
        generator.generate(prompt(49, 2))
    with pytest.raises(GenerationError, match=r"has shape \[2, 3\], input_ids has shape \[2, 9\]"):
        generator.generate(source, attention_mask=mask[:, :3])


@pytest.mark.slow
@RECOGNIZE
def test_whisper_tokens_equal_transformers(recognize, tmp_path):
    model = whisper()
    asset = llm.convert(model, 48, recognize=recognize).save_asset(tmp_path / "whisper.aimodel")
    generator = llm.Generator(asset)
    seen = set()
    for seed, start in ((0, [[3]]), (1, [[3]]), (2, [[3, 40, 50]])):
        inputs = {"input_features": features(seed), "decoder_input_ids": torch.tensor(start)}
        with torch.no_grad():
            want = model.generate(**inputs, max_new_tokens=32, do_sample=False)
        seen |= set(want.flatten().tolist())
        got = generator.generate(**inputs, max_new_tokens=32)
        # Whisper's generate in transformers omits the prompt.
        assert torch.equal(got[:, len(start[0]) :], want)
    assert len(seen) > 4
    with pytest.raises(GenerationError, match=r"the encoder takes \[1, 16, 60\]"):
        generator.generate(features(0)[:, :, :50])


def test_unknown_encoder_raises():
    import transformers

    config = transformers.Speech2TextConfig(
        vocab_size=64, d_model=16, encoder_layers=1, decoder_layers=1, conv_channels=16
    )
    model = transformers.Speech2TextForConditionalGeneration(config).eval()
    with pytest.raises(ConversionError, match="encodes 'input_features'"):
        llm.convert(model, 16)


def test_max_length_beyond_the_decoder_positions_raises():
    with pytest.raises(ConversionError, match="has 64 positions"):
        llm.convert(whisper(), 65)
