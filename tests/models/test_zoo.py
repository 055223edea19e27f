"""Whole models, unmodified, compared with eager torch; each in a process of its own."""

from __future__ import annotations

import collections
import os
import time

import pytest
import zoo
from zoo.child import judged


def _chosen(fast):
    return [
        pytest.param(row, id=name, marks=() if fast else pytest.mark.slow)
        for name, row in zoo.ROWS.items()
        if row.fast is fast
    ]


def _judge(row, dtype="float32"):
    verdict = judged(row.name, dtype)
    if row.refused:
        assert row.refused in verdict.failure, verdict.failure or "it converts: drop the reason"
    else:
        assert not verdict.failure, f"{verdict.failure}\n{verdict.trace}"


@pytest.mark.parametrize("row", _chosen(fast=True))
def test_fast_model(row):
    _judge(row)


@pytest.mark.parametrize("row", _chosen(fast=False))
def test_model(row):
    _judge(row)


def test_the_zoo_is_as_large_as_it_says():
    count = collections.Counter(row.library for row in zoo.ROWS.values() if not row.refused)
    assert count["transformers"] >= 40
    assert count["timm"] >= 25
    assert count["torchvision"] >= 20
    assert count["diffusers"] >= 6


def _abort(name, dtype):
    os.abort()


def _sleep(name, dtype):
    time.sleep(60)


def test_a_native_abort_is_a_verdict():
    assert judged("lstm", work=_abort).failure == "died of SIGABRT"


def test_so_is_no_answer():
    assert judged("lstm", patience=1.0, work=_sleep).failure == "no answer in 1 s"
