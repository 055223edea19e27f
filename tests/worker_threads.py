"""Run jobs in threads that each own a worker, such as a child process."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any


def run_jobs(
    jobs: Iterable[Any], workers: int, start: Callable[[], Any], run: Callable[[Any, Any], Any]
) -> Iterator[Any]:
    """Yield `run(worker, job)` for each job as it is ready; `start()` makes a worker to close."""
    waiting: queue.SimpleQueue[Any] = queue.SimpleQueue()
    ready: queue.SimpleQueue[Any] = queue.SimpleQueue()
    for job in (*jobs, *[None] * workers):
        waiting.put(job)

    def work() -> None:
        worker = start()
        try:
            while (job := waiting.get()) is not None:
                ready.put(run(worker, job))
        finally:
            worker.close()
            ready.put(None)

    for _ in range(workers):
        threading.Thread(target=work, daemon=True).start()
    for _ in range(workers):
        while (result := ready.get()) is not None:
            yield result
