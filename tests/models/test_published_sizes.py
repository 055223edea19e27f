"""Models at their published sizes convert, load and run within limits of time and memory."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path

import published_sizes
import published_sweep
import pytest
import zoo
from zoo.published_changes import CHANGES, SHORT, SMALL_VOCABULARY
from zoo.published_rows import standing_for
from zoo.published_sizes import NOT_DERIVED
from zoo.published_transformers import without_sizes

# With an earlier version, `optimize` did not return, or loading took more than 16 GB.
REPORTED = ("mpnet 512 tokens", "timm_volo_d1_224 224x224")


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.PUBLISHED_SIZES)
def test_model_at_its_published_size(name):
    verdict = published_sizes.verdict_on(name)
    assert not verdict.failure, f"{verdict.failure}\n{verdict.trace}"


@pytest.mark.stored
def test_stored_verdicts_pass():
    stored = published_sizes.load()
    assert {v["commit"] for v in stored["models"].values()} == {r["commit"] for r in stored["runs"]}
    failures = {n: v["failure"] for n, v in stored["models"].items() if v["failure"]}
    assert not failures
    assert set(REPORTED) <= set(stored["models"])


def test_every_model_of_the_zoo_has_a_row_at_its_published_size_or_a_reason():
    missing = {name for name in zoo.ROWS if standing_for(name, zoo.PUBLISHED_SIZES) is None}
    assert missing == set(NOT_DERIVED)
    assert all(NOT_DERIVED.values())


def test_every_change_belongs_to_a_derived_row():
    changed = {*CHANGES, *SHORT, *SMALL_VOCABULARY}
    assert {f"{name} published" for name in changed} <= set(zoo.PUBLISHED_SIZES)
    assert not SHORT & SMALL_VOCABULARY


def test_without_sizes_keeps_the_depth_of_a_pattern_and_drops_widths():
    small = {"hidden_size": 48, "vocab_size": 96, "num_hidden_layers": 2, "use_cache": False}
    alone = without_sizes(small)
    assert alone == {"vocab_size": 32_000, "num_hidden_layers": 1, "use_cache": False}
    layers = {**small, "layer_types": ["conv", "full_attention"], "pad_token_id": 0}
    assert without_sizes(layers)["num_hidden_layers"] == 2
    assert without_sizes({"text_config": small}) == {"text_config": alone}


def test_sweep_continues_after_the_judged_models(tmp_path):
    file = tmp_path / "lines.jsonl"
    verdict = {"name": "bert 512 tokens", "error": float("nan")}
    published_sweep._add(file, dict(verdict), {"commit": "a"})
    published_sweep._add(file, {**verdict, "name": "opt 2048 tokens"}, {"commit": "b"})
    assert published_sweep.judged_names(file, "a") == {"bert 512 tokens"}
    assert published_sweep.judged_names(tmp_path / "none.jsonl", "a") == set()


def test_sweep_skips_lines_without_a_verdict(tmp_path):
    file = tmp_path / "lines.jsonl"
    run = {"commit": "a"}
    marker = json.dumps({"name": "gpt2 1024 tokens", "run": run})
    file.write_text(f'{{"name": "cut o\n{marker}\n')
    published_sweep._add(file, {"name": "bert 512 tokens", "error": 0.0}, run)
    assert published_sweep.judged_names(file, "a") == {"bert 512 tokens"}


def test_sweep_removes_the_temporary_folder_of_a_killed_model(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "lines.jsonl"

    def leave_a_file(*_):
        Path(tempfile.mkdtemp(), "model.aimodel").write_bytes(b"weights")
        os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(published_sweep, "_work", leave_a_file)
    forks = published_sweep._Forks(file, {"commit": "a"}, 60.0)
    forks.start("bert 512 tokens")
    while not list(forks.collect()):
        time.sleep(0.01)
    assert [path.name for path in tmp_path.iterdir()] == ["results"]
    (line,) = published_sizes.read_lines(file)
    assert line["verdict"]["failure"] == "SIGKILL"


def test_sweep_takes_one_model_of_each_family_in_turn():
    assert published_sweep.in_turn(["bert 512 tokens", "opt 2048 tokens", "vit 224x224"]) == [
        "bert 512 tokens",
        "vit 224x224",
        "opt 2048 tokens",
    ]
