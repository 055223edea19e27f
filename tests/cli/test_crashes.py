"""Native crashes, full disks and interruptions end with an exit code, JSON and no debris."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from cli.shell import saved
from torch import nn

from coreai_torch._console_script import is_console_script
from coreai_torch.cli.console import error_data
from coreai_torch.errors import SaveError

ROOT = Path(__file__).parents[2]
CRASHING = """
import os, signal, time
import torch
from torch import nn
from coreai_torch.asset.program import Program

def relu():
    return nn.ReLU(), (torch.ones(3),)

def aborts():
    os.abort()

def full():
    def write(self, folder, *rest):
        folder.mkdir()
        (folder / "main.mlirb").write_text("half")
        os._exit(1)  # as LLVM does when the disk is full

    Program._write = write
    return relu()

def waits():
    print("ready", flush=True)
    time.sleep(60)
"""


def _interruptible() -> None:
    """Accept SIGINT: a shell that starts the tests in the background makes children ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def command(tmp_path, *arguments, **options):
    (tmp_path / "crashing.py").write_text(CRASHING)
    return subprocess.Popen(
        [sys.executable, "-m", "coreai_torch.cli", *arguments],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **{"preexec_fn": _interruptible, **options},
    )


@pytest.mark.parametrize(
    ("factory", "problem"),
    [("aborts", "was killed by SIGABRT"), ("full", "exited with code 1")],
)
def test_native_crash_exits_with_3_and_leaves_no_files(tmp_path, factory, problem):
    convert = ("convert", f"crashing.py:{factory}", "-o", "net.aimodel", "--no-verify", "--json")
    process = command(tmp_path, *convert)
    out, err = process.communicate()
    assert process.returncode == 3, err
    error = json.loads(out)["error"]
    assert (error["code"], problem in error["message"]) == ("CAT201", True)
    assert [name for name in os.listdir(tmp_path) if name != "__pycache__"] == ["crashing.py"]


def test_interruption_shows_no_traceback(tmp_path):
    process = command(tmp_path, "check", "crashing.py:waits", start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does
    _, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert err == "error: interrupted; no partial file was written\n"


# The console script as pip writes it, with a hook that acts when a module is looked up.
SCRIPT = """
import os, signal, sys
class Hook:
    def find_spec(self, name, path=None, target=None):
        if name == {module!r}: {act}
sys.meta_path.insert(0, Hook())
import re
from coreai_torch.cli import main
if __name__ == '__main__':
    sys.argv[0] = re.sub(r'(-script\\.pyw|\\.exe)?$', '', sys.argv[0])
    sys.exit(main())
"""


def console_script(tmp_path, module, act, *arguments):
    script = tmp_path / "coreai-torch"
    script.write_text(SCRIPT.format(module=module, act=act))
    return subprocess.Popen(
        [sys.executable, script, *arguments],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=_interruptible,
    )


@pytest.mark.parametrize(
    "module",
    [
        "coreai_torch._import_hook",
        "coreai_torch.cli",
        "coreai_torch.cli.app",
        "typer",
        "coreai_torch.cli.verify",
    ],
)
def test_interruption_while_the_command_is_imported_shows_no_traceback(tmp_path, module):
    process = console_script(tmp_path, module, "os.kill(os.getpid(), signal.SIGINT)", "ops")
    out, err = process.communicate()
    assert (process.returncode, out, err) == (-signal.SIGINT, "", "")


def test_interruption_that_native_code_drops_shows_no_traceback(tmp_path):
    lines = ("try: os.kill(os.getpid(), signal.SIGINT)", "except KeyboardInterrupt: 1 / 0")
    process = console_script(tmp_path, "ml_dtypes", f"exec({chr(10).join(lines)!r})", "ops")
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert err == "error: interrupted; no partial file was written\n"


@pytest.mark.parametrize("delay", [0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.6])
def test_interruption_at_any_moment_shows_no_traceback(tmp_path, delay):
    first = "coreai_torch._import_hook"  # the second module of the package
    process = console_script(tmp_path, first, "print('begun', flush=True)", "ops", "--json")
    assert process.stdout.readline() == "begun\n"
    time.sleep(delay)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert "Traceback" not in err
    assert process.returncode in (0, 130, -signal.SIGINT)


@pytest.mark.parametrize(
    ("argv", "original", "expected"),
    [
        (["/usr/bin/coreai-torch", "ops"], ["python", "/usr/bin/coreai-torch", "ops"], True),
        ([r"C:\\Scripts\\coreai-torch.exe"], [r"C:\\Scripts\\coreai-torch.exe"], True),
        (["-m", "ops"], ["python", "-m", "coreai_torch.cli", "ops"], True),
        (["-m", "x"], ["python", "-m", "pytest", "x"], False),
        (["train.py"], ["python", "train.py"], False),
        ([], ["python"], False),
    ],
    ids=["script", "windows", "module", "other module", "user", "embedded"],
)
def test_only_the_console_script_changes_the_handling_of_interruptions(
    monkeypatch, argv, original, expected
):
    monkeypatch.setattr(sys, "argv", argv)
    monkeypatch.setattr(sys, "orig_argv", original)
    assert is_console_script() is expected


def test_importing_the_package_keeps_the_handler():
    script = "import signal, coreai_torch; print(signal.getsignal(2) is signal.default_int_handler)"
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        preexec_fn=_interruptible,
    )
    assert done.stdout == "True\n", done.stderr


def test_interruption_of_the_parent_reaches_the_command(tmp_path):
    process = command(tmp_path, "check", "crashing.py:waits", start_new_session=True)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=30)
    assert (process.returncode, err.count("\n")) == (130, 1)


def test_background_job_ignores_interruption_and_can_be_terminated(tmp_path):
    def ignore():
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    process = command(tmp_path, "check", "crashing.py:waits", preexec_fn=ignore)
    assert process.stdout.readline() == "ready\n"
    process.send_signal(signal.SIGINT)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.5)
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 128 + signal.SIGTERM


@pytest.fixture
def full_disk(monkeypatch):
    monkeypatch.setattr(shutil, "disk_usage", lambda path: SimpleNamespace(free=1000))


class Large(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(512, 512))

    def forward(self, x):
        return x @ self.weight


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    return saved(tmp_path_factory.mktemp("large") / "large.aimodel", Large(), torch.ones(1, 512))


def test_free_space_is_checked_before_anything_is_written(shell, tmp_path, large, full_disk):
    shutil.copytree(large, tmp_path / "large.aimodel")
    before = sorted(os.listdir())
    for arguments in (
        ("convert", "models.py:with_args", "-o", "net.aimodel", "--no-verify"),
        ("strip", "large.aimodel"),
        ("report", "large.aimodel", "-o", "page.html"),
    ):
        result = shell(*arguments, "--json")
        assert (result.code, result.json["error"]["code"]) == (3, "CAT118"), result
        assert "could not be saved: it needs about" in result.json["error"]["message"]
        assert result.json["error"]["hint"] == "free disk space, or pass another output path"
        assert sorted(os.listdir()) == before
    assert (large / "main.mlirb").read_bytes() == Path("large.aimodel/main.mlirb").read_bytes()


def test_needed_space_is_that_of_the_asset(large):
    from coreai_torch.asset.mlir_module import mlir_module_of
    from coreai_torch.asset.resources import asset_at
    from coreai_torch.asset.space import saved_bytes

    written = (large / "main.mlirb").stat().st_size
    assert abs(saved_bytes(mlir_module_of(asset_at(large).program)) - written) < 4096


def test_disk_that_becomes_full_is_reported(shell, monkeypatch):
    from coreai_torch.asset.program import Program

    def fails(*given):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Program, "_write", fails)
    result = shell("convert", "models.py:with_args", "-o", "n.aimodel", "--no-verify", "--json")
    assert (result.code, result.json["error"]["code"]) == (3, "CAT118")
    assert "the disk is full" in result.json["error"]["message"]
    assert os.listdir() == ["models.py"]


def test_save_error_is_a_runtime_error():
    assert issubclass(SaveError, RuntimeError)


def test_json_of_an_error_has_four_keys():
    problem = "it failed: why\n        more"
    message = f'{problem}\n  at    File "a.py", line 1\n  try   pass x\n  code  CAT109'
    assert error_data(message, "CAT109") == {
        "code": "CAT109",
        "message": problem,
        "hint": "pass x",
        "at": 'File "a.py", line 1',
    }
    usage = error_data("'net' is not a file; try  models.py:net", "usage")
    assert (usage["message"], usage["hint"]) == ("'net' is not a file", "models.py:net")
    two = "no a\n  at    1\n  try   b\nno c\n  at    2\n  try   d\n  code  CAT102"
    assert error_data(two, "CAT102") == {
        "code": "CAT102",
        "message": two.removesuffix("\n  code  CAT102"),
        "hint": "b",
        "at": "1",
    }
