"""Compare unmodified models with eager torch, each in a child process.

A missing library (torchvision, timm, diffusers, ...) fails the models that need it when they run;
collecting the tests imports none of them.
"""

from __future__ import annotations

import collections

import pytest
import zoo
from zoo.child import judged, judged_by_fleet

FAST = [name for name in zoo.ROWS if name in zoo.FAST]
SLOW = [name for name in zoo.ROWS if name not in zoo.FAST]


def _judge(name, dtype=""):
    row, verdict = zoo.ROWS[name], judged(name, dtype)
    if row.refused:
        assert row.refused in verdict.failure, verdict.failure or "it converts: remove `refused`"
    else:
        assert not verdict.failure, f"{verdict.failure}\n{verdict.trace}"


@pytest.mark.parametrize("name", FAST)
def test_fast_model(name):
    _judge(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", SLOW)
def test_model(name):
    _judge(name)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("name", zoo.HALF_PRECISION)
def test_half_precision(name, dtype):
    _judge(name, dtype)


def test_every_family_is_judged_in_half_precision():
    families = {row.family for row in zoo.ROWS.values()} - {"optical flow"}
    assert {zoo.ROWS[name].family for name in zoo.HALF_PRECISION} == families


def test_number_of_models_by_library():
    count = collections.Counter(row.library for row in zoo.ROWS.values() if not row.refused)
    assert count["transformers"] >= 40
    assert count["timm"] >= 25
    assert count["torchvision"] >= 20
    assert count["diffusers"] >= 6


def test_crash_of_a_child_is_a_failure():
    assert judged("lstm", work="abort").failure == "killed by SIGABRT"


def test_timeout_of_a_child_is_a_failure():
    assert judged("lstm", patience=1.0, work="sleep").failure == "no answer in 1 s"


@pytest.mark.slow
def test_fleet_judges_several_models(tmp_path):
    verdicts = {v.name: v for v in judged_by_fleet(["lstm", "gru"], tmp_path, 2)}
    assert sorted(verdicts) == ["gru", "lstm"]
    assert [v.failure for v in verdicts.values()] == ["", ""]
    assert all(v.operations > 0 and v.error < 1e-4 for v in verdicts.values())
