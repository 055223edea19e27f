"""A crash or a hang of the native code in a child process raises an exception."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from verification.models import Net

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.mlir_module import write_module
from coreai_torch.errors import NativeError, NativeTimeout
from coreai_torch.verification.isolation import Isolated, ProgramFile

X = torch.linspace(-2, 2, 24).reshape(3, 8)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    program = torch.export.export(Net().eval(), (X,)).run_decompositions(get_decomp_table())
    path = tmp_path_factory.mktemp("program") / "net.mlirbc"
    write_module(TorchConverter().add_exported_program(program).to_coreai(), path)
    return ProgramFile(bytecode=path)


def test_a_loaded_function_can_be_called_again_after_an_error(source):
    with Isolated(source, optimize=True) as function:
        assert function.ports.inputs == ["x"]
        assert function.ports.states == []
        with pytest.raises(NativeError, match="the native code raised an error"):
            function.call({"x": np.zeros((2, 2), np.float32)}, {})
        for _ in range(2):
            outputs, _ = function.call({"x": X.numpy()}, {})
            (got,) = outputs.values()
            np.testing.assert_allclose(got, Net()(X).detach().numpy(), rtol=1e-5)


def test_a_slow_step_raises_a_timeout(source):
    with pytest.raises(NativeTimeout, match=r"took more than 0.01 s while .*"):
        Isolated(source, timeout=0.01)


def test_a_worker_that_hangs_is_ended_and_replaced(source):
    with Isolated(source) as function:
        worker = function._worker.child.pid
        os.kill(worker, signal.SIGSTOP)
        function._timeout = 0.2
        with pytest.raises(NativeTimeout, match=r"took more than 0.2 s"):
            function.call({"x": X.numpy()}, {})
        assert not function.alive
        assert not Path(f"/proc/{worker}").exists()
        function._timeout = 60.0
        function.load(source)
        assert function.alive
        outputs, _ = function.call({"x": X.numpy()}, {})
        (got,) = outputs.values()
        np.testing.assert_allclose(got, Net()(X).detach().numpy(), rtol=1e-5)


def test_temporary_folders_are_removed(source, tmp_path, monkeypatch):
    # A separate folder: other tests write to the common one at the same time.
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    with Isolated(source):
        assert any(name.startswith("coreai-torch-") for name in os.listdir(tmp_path))
    with pytest.raises(NativeError):
        Isolated(source, entrypoint="absent")
    assert not os.listdir(tmp_path)


def test_an_unknown_entrypoint_raises_an_error_that_lists_the_known_ones(source):
    with pytest.raises(NativeError, match=r"no entrypoint 'absent'; there are \['main'\]"):
        Isolated(source, entrypoint="absent")


def test_the_child_exits_and_cleans_up_when_its_parent_is_killed(source, tmp_path):
    script = (
        "import os, sys\nfrom pathlib import Path\n"
        "from coreai_torch.verification.isolation import Isolated, ProgramFile\n"
        "loaded = Isolated(ProgramFile(bytecode=Path(sys.argv[1])))\n"
        "print(loaded._worker.child.pid, flush=True)\n"
        "os.kill(os.getpid(), 9)\n"
    )
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", script, str(source.bytecode)]
    killed = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert killed.returncode == -9
    child = Path("/proc") / killed.stdout.strip()
    for _ in range(100):
        if not child.exists() and not os.listdir(tmp_path):
            return
        time.sleep(0.1)
    pytest.fail(f"left: {os.listdir(tmp_path)}, child {'alive' if child.exists() else 'gone'}")


_STOP_WORKER_AND_DIE = """
import os, signal, sys
from coreai_torch.sandbox.child import Child
worker = Child.spawn("coreai_torch.asset.worker:serve", sys.argv[1], False)
print(worker.pid, worker.ask(("fetch", {"key": 1})), flush=True)  # an error, once it serves
os.kill(worker.pid, signal.SIGSTOP)  # as in a native call, it does not read its input
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_worker_ends_if_its_parent_is_killed(tmp_path):
    folder = tmp_path / "worker"
    folder.mkdir()
    command = [sys.executable, "-c", _STOP_WORKER_AND_DIE, str(folder)]
    ended = subprocess.run(command, stdout=subprocess.PIPE, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL
    worker = Path("/proc") / ended.stdout.decode().split()[0]
    until = time.monotonic() + 10
    while (folder.exists() or worker.exists()) and time.monotonic() < until:
        time.sleep(0.05)
    assert not folder.exists()
    assert not worker.exists()
