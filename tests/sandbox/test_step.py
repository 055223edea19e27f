"""Crashes of native steps and full disks are errors of the Python API, without debris."""

from __future__ import annotations

import os
import resource
import signal
import sys
import threading
import time
import warnings
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch.asset import program
from coreai_torch.errors import NativeError, SaveError
from coreai_torch.ir import dialect
from coreai_torch.sandbox import step
from coreai_torch.sandbox.step import run_step

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux forks")


@pytest.fixture(autouse=True)
def with_forks(monkeypatch):
    monkeypatch.delenv("COREAI_TORCH_FORK")


def converted(**options):
    model, x = nn.Linear(512, 512), torch.ones(1, 512)
    return coreai_torch.convert(model, (x,), verify=False, **options)


def relu(with_own_lowering=False):
    converter = coreai_torch.TorchConverter(optimize=False)
    if with_own_lowering:

        @converter.register_torch_lowering("aten::relu", allow_override=True)
        def lower(ctx, x):
            return dialect.relu(x)

    exported = torch.export.export(nn.ReLU(), (torch.ones(3),)).run_decompositions({})
    return converter.add_exported_program(exported).to_coreai()


@contextmanager
def file_size_limit(nbytes):
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_write_that_fails_in_native_code_keeps_the_old_asset(tmp_path):
    path = tmp_path / "net.aimodel"
    net = converted(output=path)
    before = (path / "main.mlirb").read_bytes()
    with file_size_limit(1 << 18), pytest.raises(SaveError, match="could not be saved: file too"):
        net.save_asset(path)
    assert os.listdir(tmp_path) == ["net.aimodel"]
    assert (path / "main.mlirb").read_bytes() == before
    net.save_asset(path)


def test_full_disk_during_the_native_write_is_a_save_error(tmp_path, monkeypatch):
    def exits(*given):
        os.write(2, b"LLVM ERROR: IO failure on output stream: No space left on device\n")
        os._exit(1)

    net = converted()
    monkeypatch.setattr(program.Program, "_write", exits)
    with pytest.raises(SaveError, match="the disk is full"):
        net.save_asset(tmp_path / "net.aimodel")
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("ends", [os.abort, lambda: os._exit(3)], ids=["SIGABRT", "code 3"])
def test_crash_while_optimizing_is_a_native_error(tmp_path, monkeypatch, ends, request):
    net = relu(with_own_lowering=True)

    def crashes(given):
        os.write(2, b"Assertion `x` failed\n")
        ends()

    with monkeypatch.context() as patch:
        patch.setattr(program, "optimize_here", crashes)
        with pytest.raises(NativeError) as raised:
            net.optimize()
        net._optimize_at_save = True
        with pytest.raises(NativeError, match="while saving"):
            net.save_asset(tmp_path / "net.aimodel")
    end = request.node.callspec.id
    assert f"{end} while optimizing\n  log   Assertion `x` failed\n  try " in str(raised.value)
    assert os.listdir(tmp_path) == []
    net.save_asset(tmp_path / "net.aimodel")
    assert not net._optimize_at_save


def test_program_of_built_in_lowerings_is_optimized_without_a_child(monkeypatch):
    steps = []
    monkeypatch.setattr(program, "run_step", lambda step, doing: steps.append(doing))
    relu().optimize()
    assert not steps
    relu(with_own_lowering=True).optimize()
    assert steps == ["optimizing"]


def test_program_with_static_shapes_is_optimized_in_a_child_first(monkeypatch):
    steps = []
    net = relu()
    monkeypatch.setattr(program, "run_step", lambda step, doing: steps.append(doing))
    net.set_static_shape_config("main", {"three": {"input": [3]}})
    net.optimize()
    assert set(steps) == {"optimizing"}


def test_program_is_optimized_here_after_it_was_saved_in_a_child(tmp_path):
    net = relu()
    before = str(net.mlir_module)
    net._optimize_at_save = True
    net.save_asset(tmp_path / "net.aimodel")
    assert str(net.mlir_module) != before
    assert not net._optimize_at_save


def test_exception_of_a_step_is_raised_with_its_type():
    def raises():
        raise SaveError("it failed")

    def raises_local():
        class Local(Exception):
            pass

        raise Local("it failed too")

    with pytest.raises(SaveError, match="it failed"):
        run_step(raises, "trying")
    with pytest.raises(RuntimeError, match="it failed too"):
        run_step(raises_local, "trying")


def test_step_runs_here_if_no_child_can_be_started(monkeypatch, tmp_path):
    def fails():
        raise BlockingIOError

    monkeypatch.setattr(os, "fork", fails)
    assert not run_step(pytest.fail, "trying")
    assert converted(output=tmp_path / "net.aimodel")


def test_blocked_child_is_ended(monkeypatch):
    monkeypatch.setattr(step, "_IDLE", 0.05)
    assert not run_step(lambda: os.read(os.pipe()[0], 1), "waiting")


def test_output_of_a_step_reaches_the_terminal(capfd):
    assert run_step(lambda: os.write(1, b"a remark\n"), "trying")
    assert capfd.readouterr().err == "a remark\n"


def test_no_warning_of_threads(recwarn):
    with warnings.catch_warnings(record=True) as seen:
        assert run_step(lambda: None, "trying")
    assert not seen


def test_exception_larger_than_a_pipe_reaches_the_caller():
    def raises():
        raise ValueError("x" * 200_000)

    with pytest.raises(ValueError, match="xxxx") as raised:
        run_step(raises, "testing")
    assert len(str(raised.value)) == 200_000


def test_interruption_ends_the_child():
    reader, writer = os.pipe()
    children = []

    def waits():
        os.write(writer, str(os.getpid()).encode())
        time.sleep(600)

    def started():
        children.append(int(os.read(reader, 20)))
        threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGINT)).start()

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_step(waits, "waiting", started)
    finally:
        signal.signal(signal.SIGINT, before)
    assert not Path(f"/proc/{children[0]}").exists()
