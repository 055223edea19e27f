"""A child of either start: its messages, its limits, and how it ended."""

from __future__ import annotations

import faulthandler
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from coreai_torch.sandbox.call import call
from coreai_torch.sandbox.child import IDLE, MEMORY, SECONDS, Child, Ended, Limits

LARGE = 5_000_000  # bytes; a pipe holds 65,536


def acts(channel, name):
    """Do what the name says; the target of children."""
    faulthandler.disable()  # of pytest, which writes to its terminal
    channel.send("began")
    {
        "abort": lambda: (os.write(2, b"an assertion failed\n"), os.abort()),
        "code": lambda: os._exit(3),
        "hang": lambda: time.sleep(600),
        "leak": lambda: [bytearray(b"x" * 400_000_000), time.sleep(600)],
        "large": lambda: (os.write(1, b"y" * LARGE), channel.send(b"x" * LARGE)),
        "half": lambda: (os.write(channel._messages, b"x" * 12), os.abort()),
    }[name]()


@pytest.fixture(params=["fork", "spawn"])
def start(request):
    children = []

    def start(name):
        forked = request.param == "fork"
        child = (
            Child.fork(lambda channel: acts(channel, name))
            if forked
            else Child.spawn("sandbox.test_child:acts", name)
        )
        children.append(child)
        assert child.receive(Limits(seconds=60)) == "began"
        return child

    yield start
    for child in children:
        child.close()
        assert not Path(f"/proc/{child.pid}").exists()


@pytest.mark.parametrize(
    ("name", "why", "code"),
    [
        ("abort", "was killed by SIGABRT", -signal.SIGABRT),
        ("code", "exited with code 3", 3),
        ("half", "was killed by SIGABRT", -signal.SIGABRT),
    ],
)
def test_end_of_a_child_is_described(start, name, why, code):
    with pytest.raises(Ended) as raised:
        start(name).receive()
    assert (raised.value.why, raised.value.code, raised.value.limit) == (why, code, "")


def test_message_has_the_last_lines(start):
    with pytest.raises(Ended) as raised:
        start("abort").receive()
    text = raised.value.message("while trying", "a hint")
    assert "SIGABRT while trying\n  log   an assertion failed\n  try   a hint" in text
    assert "log" not in raised.value.message("while trying", "a hint", without="assertion")


@pytest.mark.parametrize(
    ("name", "limits", "limit"),
    [
        ("hang", {"seconds": 0.2}, SECONDS),
        ("leak", {"memory": 300e6}, MEMORY),
        ("hang", {"idle": 0.2}, IDLE),
    ],
    ids=["time", "memory", "idle"],
)
def test_limit_ends_the_wait(start, name, limits, limit):
    child = start(name)
    with pytest.raises(Ended) as raised:
        child.receive(Limits(**limits))
    assert raised.value.limit == limit
    assert not child.alive


def test_message_and_output_larger_than_a_pipe(start):
    child = start("large")
    messages = []
    ended = child.until_end(messages.append)
    assert messages == [b"x" * LARGE]
    assert set(ended.log) == {"y"}


def echo(channel):
    for request in channel:
        channel.send(request)


def test_request_larger_than_a_pipe():
    with Child.spawn("sandbox.test_child:echo") as child:
        assert child.ask(b"x" * LARGE) == b"x" * LARGE
        assert child.ask(None) is None
        assert child.alive
        assert not child.ended


def test_child_of_a_process_with_many_open_files(start):
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    if before[1] < 2000:
        pytest.skip("the system allows fewer open files")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2000, before[1]))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1100)]
    try:
        with pytest.raises(Ended, match="exited with code 3"):
            start("code").receive()
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


def test_child_of_a_process_that_ignores_ended_children(start):
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with pytest.raises(Ended, match="ended"):
            start("code").receive()
    finally:
        signal.signal(signal.SIGCHLD, before)


def divided(a, b):
    return a / b


def aborted():
    os.abort()


def test_call_returns_and_raises():
    assert call(divided, 3, 2) == 1.5
    with pytest.raises(ZeroDivisionError):
        call(divided, 1, 0)
    with pytest.raises(Ended, match="was killed by SIGABRT"):
        call(aborted)


UNSIGNED = (torch.uint16, torch.uint32, torch.uint64, torch.float8_e4m3fn)


@pytest.mark.parametrize("dtype", [*UNSIGNED, torch.uint8, torch.bfloat16, torch.bool])
@pytest.mark.parametrize("shape", [(2, 3), (), (0,)])
def test_tensors_of_all_dtypes_reach_a_child_and_return(dtype, shape):
    given = torch.ones(shape).to(dtype)
    found = call(torch.clone, given)
    assert (found.dtype, found.shape) == (dtype, given.shape)
    assert found.tolist() == given.tolist()


COMMAND = """
import os, signal, sys, time
from coreai_torch.sandbox.command import supervised
def command():
    print(os.getpid(), flush=True)
    time.sleep(600)
sys.exit(supervised(command, print))
"""


def test_command_ends_if_its_parent_is_killed():
    parent = subprocess.Popen([sys.executable, "-c", COMMAND], stdout=subprocess.PIPE, text=True)
    child = Path("/proc") / parent.stdout.readline().strip()
    assert child.exists()
    parent.kill()
    # The output ends when all processes that write to it have ended.
    assert parent.communicate(timeout=30) == ("", None)
    until = time.monotonic() + 30
    while child.exists() and time.monotonic() < until:
        time.sleep(0.05)
    assert not child.exists()
