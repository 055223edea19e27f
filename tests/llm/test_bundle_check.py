"""`llm.check` accepts exported bundles and finds what the engine would reject."""

from __future__ import annotations

import json
import shutil
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from decoders import DECODERS, decoder
from tiny_tokenizer import END, END_TURN, tiny_tokenizer

from coreai_torch import llm
from coreai_torch.cli import main
from coreai_torch.errors import GenerationError
from coreai_torch.llm.bundle.checks import runs
from coreai_torch.llm.bundle.checks.trial import StepError, StepSkippedError, Trial
from coreai_torch.llm.bundle.states import States
from coreai_torch.verification import isolation

STEPS = [
    "folder",
    "tokenizer",
    "descriptors",
    "sequential decoding",
    "growth",
    "chunks",
    "dirty cache",
    "rewind",
    "warm-up",
    "slots above context",
]


def test_exported_bundle_passes_all_steps(llama_bundle):
    report = llm.check(llama_bundle.path, llama_bundle.model)
    assert [step.name for step in report.steps] == STEPS
    assert {step.status for step in report.steps} == {"ok"}, str(report)
    assert "equal transformers" in report.steps[3].detail


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in DECODERS if name != "llama"])
def test_architecture_passes_all_steps(name, tmp_path):
    model = decoder(name, max_position_embeddings=2048, eos_token_id=[END, END_TURN])
    bundle = llm.export(model, tmp_path / "bundle", tokenizer=tiny_tokenizer())
    report = llm.check(bundle, model)
    assert {step.status for step in report.steps} == {"ok"}, str(report)


def _edit(name, **changes):
    def edit(bundle):
        path = bundle / name
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit


def _language(**changes):
    def edit(bundle):
        path = bundle / "metadata.json"
        content = json.loads(path.read_text())
        content["language"].update(changes)
        path.write_text(json.dumps(content))

    return edit


_CONFIG = "tokenizer/tokenizer_config.json"


@pytest.mark.parametrize(
    ("damage", "step", "message"),
    [
        (_edit("metadata.json", metadata_version="0.1"), 1, "metadata_version is '0.1'"),
        (_edit("metadata.json", kind="segmenter"), 1, "kind is 'segmenter'"),
        (_edit("metadata.json", kind="vlm"), 1, "assets does not name the role embedding"),
        (_edit("metadata.json", user_data={"a": 1}), 1, "user_data contains values"),
        (_edit("metadata.json", assets={"main": "b.aimodel"}), 1, "asset b.aimodel is missing"),
        (_language(vocab_size=None), 1, "language.vocab_size is None"),
        (_language(function_map={"main": "main"}), 1, "language.function_map contains"),
        (_language(vocab_size=255), 3, "logits is not [1, ?, 255]"),
        (lambda bundle: (bundle / "metadata.json").unlink(), 1, "metadata.json is missing"),
        (lambda bundle: (bundle / "tokenizer/tokenizer.json").unlink(), 2, "lacks tokenizer.json"),
        (_edit(_CONFIG, im_end=None), 2, "does not stop at <|im_end|>"),
        (_edit(_CONFIG, additional_special_tokens=["<think>"]), 2, "within a turn at <think>"),
        (_edit(_CONFIG, chat_template="{{ messages }}"), 2, "not in both places"),
    ],
)
def test_damaged_bundle_fails_at_its_step(llama_bundle, tmp_path, damage, step, message):
    bundle = tmp_path / "bundle"
    shutil.copytree(llama_bundle.path, bundle)
    damage(bundle)
    steps = [one for one in _cheap_steps(bundle) if one.status == "failed"]
    assert message in next(one for one in steps if one.name == STEPS[step - 1]).detail


def _cheap_steps(bundle):
    from coreai_torch.llm.bundle.checks import running

    subject = running.Subject(bundle)
    steps = running.STEPS["llm"]
    return [running._run(name, steps[name], subject) for name in STEPS[:3]]


def test_missing_bundle_raises(tmp_path):
    with pytest.raises(GenerationError, match="no bundle was found at"):
        llm.check(tmp_path / "none")


_CRASHING_WORKER = """
import os
from coreai_torch.asset.worker import Session, serve

call = Session.call

async def crash(self, inputs, states):
    if inputs["input_ids"].shape[1] == 1:
        os.abort()
    return await call(self, inputs, states)

Session.call = crash
"""


def test_crash_of_the_runtime_is_a_failed_step(llama_bundle, tmp_path, monkeypatch):
    (tmp_path / "crashing_worker.py").write_text(_CRASHING_WORKER)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(isolation, "WORKER", "crashing_worker:serve")
    report = llm.check(llama_bundle.path)
    statuses = {step.name: step.status for step in report.steps}
    assert [name for name in STEPS if statuses[name] == "failed"] == [
        "sequential decoding",
        "growth",
        "dirty cache",
        "warm-up",
    ]
    assert report.steps[3].detail.startswith("the native code was killed by SIGABRT")
    assert statuses["chunks"] == statuses["rewind"] == "ok"


class _Fake:
    """A runtime whose logits are a function of the tokens, computed from the cache."""

    whole_prompt = 1024

    def __init__(self, fault="", context=2048):
        self.fault, self.calls = fault, 0
        self.metadata = SimpleNamespace(max_context_length=context, vocab_size=16, kv_cache="float")
        self.state_shape, self.state_dtype = (1, 1, 1, -1, 1), torch.float32
        self.compute_dtype, self.fixed = torch.float32, {}

    def states(self, slots=256, fill=0.0):
        return States(*(torch.full((1, 1, 1, slots, 1), fill) for _ in range(2)))

    def with_content(self, keys, values, fixed):
        return States(keys, values, fixed)

    def grown(self, slots, total):
        return slots if slots >= total else self.grown(2 * slots, total)

    def __call__(self, tokens, total, states):
        self.calls += 1
        keys = states.content("keyCache").numpy()
        offset = total - len(tokens)
        keys[0, 0, 0, offset:total, 0] = tokens.float() + 1
        states.arrays = dict.fromkeys(states.arrays, torch.from_numpy(keys))
        end = len(keys[0, 0, 0]) if self.fault == "leak" else total
        sums = np.cumsum(keys[0, 0, 0, :end, 0])[offset : offset + len(tokens)]
        if self.fault == "leak":
            sums = sums + keys.sum() * 0.01
        if self.fault == "offset" and offset:
            sums = sums - keys[0, 0, 0, 0, 0]
        if self.fault == "slots" and keys.shape[3] > 512:
            sums = sums * 2
        if self.fault == "second" and self.calls == 2:
            sums = sums * 1.5
        rows = torch.from_numpy(sums.astype(np.float32))[:, None] + torch.arange(16.0)
        return torch.cos(rows) * 10


RUNS = [
    runs.decode,
    runs.grow,
    runs.chunks,
    runs.dirty,
    runs.rewind,
    runs.warm_up,
    runs.many_slots,
]


@pytest.mark.parametrize("run", RUNS)
def test_correct_engine_passes(run):
    assert run(Trial(_Fake(), None))


@pytest.mark.parametrize(
    ("run", "fault"),
    [
        (runs.decode, "offset"),
        (runs.grow, "second"),
        (runs.chunks, "offset"),
        (runs.dirty, "leak"),
        (runs.rewind, "offset"),
        (runs.warm_up, "second"),
        (runs.many_slots, "slots"),
    ],
)
def test_faulty_engine_fails(run, fault):
    with pytest.raises(StepError):
        run(Trial(_Fake(fault), None))


def test_growth_is_skipped_for_a_short_context():
    with pytest.raises(StepSkippedError, match="a context of 64 never outgrows 256 slots"):
        runs.grow(Trial(_Fake(context=64), None))
    assert "64 tokens in chunks of 21" in runs.chunks(Trial(_Fake(context=64), None))


def test_other_model_fails(llama_bundle):
    from coreai_torch.llm.bundle.runtime import BundleRuntime

    other = decoder("llama", max_position_embeddings=2048, rope_parameters={"rope_theta": 100.0})
    with pytest.raises(StepError, match="differ from transformers"):
        runs.decode(Trial(BundleRuntime(llama_bundle.path), other))


def test_command_checks_and_sets_the_exit_code(llama_bundle, tmp_path, capsys):
    with pytest.raises(SystemExit) as exit_:
        main(["llm", "check", str(llama_bundle.path), "--json"])
    report = json.loads(capsys.readouterr().out)
    assert exit_.value.code == 0
    assert [step["status"] for step in report["steps"]] == ["ok"] * 10
    bundle = tmp_path / "bundle"
    shutil.copytree(llama_bundle.path, bundle)
    (bundle / "metadata.json").unlink()
    with pytest.raises(SystemExit) as exit_:
        main(["llm", "check", str(bundle)])
    assert exit_.value.code == 1
    assert "metadata.json is missing" in capsys.readouterr().out
