"""The progress bar appears on a terminal after a delay, and nowhere else."""

from __future__ import annotations

import io
import sys

import pytest

from coreai_torch import progress


class Screen(io.StringIO):
    def __init__(self, terminal):
        super().__init__()
        self.terminal = terminal

    def isatty(self):
        return self.terminal


def shown(monkeypatch, *, terminal, delay):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setattr(progress, "_DELAY", delay)
    monkeypatch.setenv("TERM", "xterm")
    with progress.progress("converting", 3) as advance:
        for _ in range(3):
            advance()
    return screen.getvalue()


def test_long_conversion_shows_count_and_remaining_time(monkeypatch):
    bar = shown(monkeypatch, terminal=True, delay=-1.0)
    assert "converting" in bar
    assert "3/3" in bar
    assert "left" in bar


@pytest.mark.parametrize(("terminal", "delay"), [(True, 60.0), (False, -1.0)])
def test_quick_or_piped_conversion_prints_nothing(monkeypatch, terminal, delay):
    assert shown(monkeypatch, terminal=terminal, delay=delay) == ""


def test_running_stage_is_shown(monkeypatch):
    screen = Screen(terminal=True)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress.stages() as stage, stage("verifying"):
        pass
    assert screen.getvalue().count("verifying") >= 2, "once live, once with what it took"


@pytest.mark.parametrize("terminal", [True, False])
def test_stage_times_are_shown_only_on_a_terminal(monkeypatch, terminal):
    screen = Screen(terminal)
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("TERM", "xterm")
    with progress.stages() as stage, stage("decomposing", ops=1234, live=False):
        pass
    if not terminal:
        assert screen.getvalue() == ""
        return
    assert "decomposing" in screen.getvalue()
    assert "1,234 ops" in screen.getvalue()
    assert "MB" in screen.getvalue()
