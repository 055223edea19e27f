"""Functions that fleet plans of the tests call; they run in child processes without torch."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from pathlib import Path


def _log(task, **more):
    """Append one line to the file that the configuration names."""
    if "log" in task.config:
        line = json.dumps({"id": task.id, "pid": os.getpid(), **more}) + "\n"
        with open(task.config["log"], "ab", buffering=0) as file:
            file.write(line.encode())


def short(task):
    _log(task)
    time.sleep(task.config.get("seconds", 0.0))
    return {"ops": len(task.id), "note": "done"}


def by_name(task):
    """Do what the name of the model says."""
    _log(task)
    return {
        "crash": _crash,
        "hang": _hang,
        "leak": _leak,
        "exit": _exit,
        "raise": _raise,
        "killed": _killed,
        "children": _children,
    }[task.model.rstrip("0123456789")](task)


def _crash(task):
    os.write(2, b"assertion failed in native code\n")
    os.abort()


def _hang(task):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(600)


def _leak(task):
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20) * 16))
        time.sleep(0.01)


def _exit(task):
    os._exit(7)


def _raise(task):
    raise ValueError("the weights are missing\nsecond line")


def _killed(task):
    os.kill(os.getpid(), signal.SIGKILL)


def _children(task):
    """Leave a process behind, in another session and with a parent that ended."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            _log(task, orphan=True)
            time.sleep(600)
        os._exit(0)
    os.wait()
    time.sleep(0.2)
    return {}


def write_file(task):
    """Write a file of a megabyte where temporary files go."""
    _log(task)
    time.sleep(task.config.get("seconds", 0.0))
    path = Path(tempfile.mkdtemp()) / "asset"
    with path.open("wb") as file:
        for _ in range(64):
            file.write(bytes(1 << 14))
    return {"file_bytes": path.stat().st_size}


def report_and_crash(task, report):
    """Report values one after another, then crash."""
    report({"ops": 2, "judged": ["first"]})
    report({"ops": 3, "judged": ["first", "second"]})
    os.abort()


def environment(task):
    """Return what the interpreter of the environment set."""
    return {"variable": os.environ.get("FLEET_TEST", "")}


def returns(task):
    """Return what a function of a user may return by mistake."""
    return {
        "nothing": None,
        "verdict": {"verdict": "ok"},
        "text": {"seconds": 1.0, "ops": "many", "path": Path("a"), "message": "\ud800"},
        "id": {"id": "another", "key": "another", "ops": 1 << 70},
    }[task.model]
