"""The demo runs as a user runs it, and it reports a wrong program."""

import dataclasses
import subprocess
import sys
from pathlib import Path

import pytest
import torch

DIGITS = Path(__file__).parents[2] / "examples" / "digits"


def test_demo_converts_and_agrees_with_torch():
    ran = subprocess.run(
        [sys.executable, DIGITS / "demo.py"], capture_output=True, text=True, timeout=120
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 predictions differ" in ran.stdout


@pytest.fixture
def demo(monkeypatch):
    monkeypatch.syspath_prepend(str(DIGITS))
    import demo

    yield demo
    for name in ("demo", "model"):  # another example may use the same module names
        sys.modules.pop(name, None)


@pytest.fixture
def report(demo):
    logits = torch.eye(10)
    return demo.Report(torch.arange(10), logits, logits.clone(), asset_bytes=0)


def test_equal_logits_pass(report):
    assert report.holds
    assert report.accuracy(report.by_coreai) == 1.0


@pytest.mark.parametrize("error", [1.5e-4, float("nan")])
def test_logit_beyond_the_bound_fails(report, error):
    off = report.by_torch.clone()
    off[3, 3] += error
    assert not dataclasses.replace(report, by_coreai=off).holds


def test_other_prediction_fails(report):
    # A tie with the other winner: the difference of 1e-5 is within the bound.
    near = report.by_torch.clone()
    near[0, 1] = near[0, 0]
    flipped = near.clone()
    flipped[0, 1] += 1e-5
    assert not dataclasses.replace(report, by_torch=near, by_coreai=flipped).holds


def test_held_out_images_and_accuracy(demo):
    from model import held_out, trained

    images, labels = held_out()
    assert images.shape == (450, 1, 8, 8)
    assert images.max() == 16
    assert labels.unique().tolist() == list(range(10))
    with torch.no_grad():
        assert (trained()(images).argmax(1) == labels).float().mean() > 0.97
