"""Speech models with published weights: the program gives the results of torch."""

from __future__ import annotations

import asyncio
import wave

import numpy as np
import published_speech
import runtime
import torch

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.dynamic_rnn import keep_rnn_lengths_dynamic

BATCH = {0: torch.export.Dim.DYNAMIC}
TIME = {0: torch.export.Dim.DYNAMIC, 1: torch.export.Dim.DYNAMIC}


def converted(model, inputs, shapes=None, **names):
    with keep_rnn_lengths_dynamic():
        exported = torch.export.export(model, inputs, dynamic_shapes=shapes)
        exported = exported.run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported, **names).to_coreai()
    program.optimize()
    return program


def recorded(path):
    """Write half a second of silence, speech and silence to a WAV file, and read it back."""
    silence = np.zeros(published_speech.RATE // 2)
    sound = np.concatenate([silence, published_speech.spoken("aiueo", 120), silence])
    with wave.open(str(path), "wb") as file:
        file.setparams((1, 2, published_speech.RATE, 0, "NONE", ""))
        file.writeframes((sound * 32767).astype("<i2").tobytes())
    with wave.open(str(path)) as file:
        samples = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    return torch.from_numpy(samples.astype(np.float32) / 32768)


async def speech_probabilities(program, chunks, path):
    """Return the probability of speech in each chunk; the caller passes the state on."""
    asset = program.save_asset(path)
    found, state = [], torch.zeros(2, 1, 128)
    async with asset.executable() as model:
        function = model.load_function("main")
        for chunk in chunks:
            feeds = {"x": runtime.ndarray(chunk), "state": runtime.ndarray(state)}
            result = await function(feeds)
            state = runtime.tensor(result["next_state"])
            found.append(runtime.tensor(result["speech"]).item())
    return torch.tensor(found)


def test_silero_finds_the_speech_in_a_wav(tmp_path):
    published, network = published_speech.silero()
    sound = recorded(tmp_path / "speech.wav")
    chunks = sound[: len(sound) // 512 * 512].view(-1, 1, 512)
    with torch.no_grad():
        want = torch.cat([published(chunk, published_speech.RATE)[0] for chunk in chunks])
    before = torch.cat([torch.zeros(1, 1, 64), chunks[:-1, :, -64:]])
    chunks = torch.cat([before, chunks], 2)  # the published model keeps the end of the last chunk
    program = converted(
        network, (chunks[0], torch.zeros(2, 1, 128)), output_names=["speech", "next_state"]
    )
    got = asyncio.run(speech_probabilities(program, chunks, tmp_path / "silero.aimodel"))
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    assert want[:10].max() < 0.1
    assert want[25:45].min() > 0.5
    assert want[-5:].max() < 0.1


def sweep():
    """Return the frames of a one-second sweep over two octaves from 110 Hz, and their pitches."""
    time = np.arange(published_speech.RATE) / published_speech.RATE
    pitch = 110 * 4**time
    sound = np.sin(2 * np.pi * np.cumsum(pitch) / published_speech.RATE)
    frames = torch.from_numpy(sound.astype(np.float32)).unfold(0, 1024, 800)
    frames = frames - frames.mean(1, keepdim=True)
    return frames / frames.std(1, keepdim=True), torch.from_numpy(pitch[512::800][: len(frames)])


def test_crepe_finds_the_pitches_of_a_sweep():
    model = published_speech.crepe()
    frames, pitch = sweep()
    program = converted(model, (frames[:3], False), (BATCH, None))
    (got,) = runtime.run(program, {"x": frames}).values()
    with torch.no_grad():
        want = model(frames)
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    cents = 1200 * torch.log2(pitch / 10)
    found = 20 * got.argmax(1) + 1997.3794084376191  # bins to cents
    assert (found - cents).abs().max() < 30, "a third of a semitone"


def test_resemblyzer_separates_two_voices():
    model = published_speech.resemblyzer()
    low = [("aiueo", 110, 1.0), ("oeaiu", 115, 1.0)]
    high = [("aiueo", 220, 1.18), ("euoiaeu", 230, 1.18)]
    mels = [published_speech.mel(published_speech.spoken(*words))[None] for words in low + high]
    program = converted(model, (torch.cat(mels[:2]),), (TIME,))
    got = torch.cat([next(iter(runtime.run(program, {"mels": m}).values())) for m in mels])
    with torch.no_grad():
        want = torch.cat([model(m) for m in mels])
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
    alike = got @ got.T
    assert min(alike[0, 1], alike[2, 3]) > alike[:2, 2:].max() + 0.05
