"""Measure time and memory of the stages of a conversion."""

import resource
import threading
import time
from contextlib import contextmanager
from pathlib import Path

STATUS = Path("/proc/self/status")


class Stages:
    """Wall and CPU seconds by stage; a stage timed several times keeps its best."""

    def __init__(self):
        self.wall, self.cpu = {}, {}

    @contextmanager
    def timed(self, stage):
        wall, cpu = time.perf_counter(), _cpu_seconds()
        yield
        wall, cpu = time.perf_counter() - wall, _cpu_seconds() - cpu
        self.keep({stage: wall}, {stage: cpu})

    def keep(self, wall, cpu):
        """Record seconds if they are the best so far."""
        for kept, found in ((self.wall, wall), (self.cpu, cpu)):
            for stage, seconds in found.items():
                kept[stage] = min(seconds, kept.get(stage, seconds))


def _cpu_seconds():
    """Return the processor seconds of this process and of the children that ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def reset_peak():
    """Reset the peak memory; Linux only."""
    if STATUS.exists():
        Path("/proc/self/clear_refs").write_text("5")


def peak_bytes():
    """Return the peak resident memory since the last reset."""
    if not STATUS.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return _status("VmHWM")


def resident_bytes():
    """Return the resident memory, or its peak if the system does not report it."""
    return _status("VmRSS") if STATUS.exists() else peak_bytes()


class AnonymousPeak:
    """Sample the peak of memory that is not backed by a file, relative to the start."""

    def __enter__(self):
        self._start = self._most = self._now()
        self._ended = threading.Event()
        self._watch = threading.Thread(target=self._look)
        self._watch.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._watch.join()

    def _look(self):
        while not self._ended.wait(0.005):
            self._most = max(self._most, self._now())

    def _now(self):
        return _status("RssAnon") if STATUS.exists() else 0

    @property
    def bytes(self):
        return self._most - self._start


def _status(field):
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) * 1024
