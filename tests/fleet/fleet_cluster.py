"""A scheduler and workers as separate processes, which a test can kill one by one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_until(condition, seconds=300.0):
    """Wait for a condition; fail if it does not become true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited {seconds:g} s"
        time.sleep(0.05)


class Cluster:
    """Processes of Dask on this machine; a context manager."""

    def __init__(self, folder, workers=3, memory=8):
        self.folder, self.count, self.memory = folder, workers, memory
        self.port = free_port()
        self.address = f"tcp://127.0.0.1:{self.port}"
        self.workers = []

    def __enter__(self):
        self.start_scheduler()
        for _ in range(self.count):
            self.start_worker()
        return self

    def __exit__(self, *ended):
        for process in (*self.workers, self.scheduler):
            process.kill()
            process.wait()

    def start_scheduler(self):
        options = ["--host", "127.0.0.1", "--port", str(self.port), "--no-dashboard"]
        self.scheduler = self._start("scheduler", *options)

    def start_worker(self, prefix=(), **environment):
        """Start a worker that is one process, without a nanny that would restart it."""
        options = [self.address, "--nthreads", "1", "--no-nanny", "--no-dashboard"]
        options += ["--resources", f"memory={self.memory}", "--memory-limit", "0"]
        options += ["--local-directory", str(self.folder), "--death-timeout", "60"]
        worker = self._start("worker", *options, prefix=prefix, **environment)
        self.workers.append(worker)
        return worker

    def _start(self, kind, *options, prefix=(), **environment):
        return subprocess.Popen(
            [*prefix, sys.executable, "-m", "dask", kind, *options],
            env={**os.environ, **environment},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
