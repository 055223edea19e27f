"""Run tasks on a Dask cluster: a local one, or any scheduler by its address.

The client keeps a limited number of tasks at the scheduler, so that neither grows with the plan. A
task that the cluster loses is submitted again: its row is returned once.
"""

from __future__ import annotations

import pkgutil
import queue
import signal
import threading
import time
import uuid
import warnings
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from ..errors import PlanError
from .columns import LOST, row
from .isolating import run_task
from .local_engine import RETRIES, Function
from .task import Task

_AHEAD = 4  # tasks at the scheduler for each thread of a worker
_LEAST_AHEAD = 16
_CONNECT = 30.0  # seconds to wait for the scheduler at the start
_RECONNECT = 600.0  # seconds to wait for a scheduler that restarts
_POLL = 1.0  # seconds between two looks at the connection
_REFRESH = 5.0  # seconds between two looks at the workers


@dataclass
class _Flight:
    """A task at the scheduler."""

    task: Task
    attempt: int = 1
    avoid: str = ""  # address of a worker whose disk is full


class _Waiting:
    """The tasks that were not submitted yet."""

    def __init__(self, tasks: Iterator[Task]) -> None:
        self._tasks = tasks
        self._next = next(tasks, None)

    @property
    def has_next(self) -> bool:
        return self._next is not None

    def take(self) -> Task:
        """Return the next task."""
        taken, self._next = self._next, next(self._tasks, None)
        assert taken is not None
        return taken


class DaskEngine:
    """Tasks on the workers of a cluster; a context manager."""

    def __init__(
        self,
        scheduler: str = "",
        workers: int = 0,
        memory: float = 0.0,
        reconnect: float = _RECONNECT,
        ahead: int = _LEAST_AHEAD,
    ) -> None:
        """Name the scheduler, or the number of local worker processes and their memory in GB.

        `reconnect` is the number of seconds to wait for a scheduler that restarts. `ahead` is the
        least number of tasks at the scheduler; more of them help if tasks take milliseconds.
        """
        self._scheduler, self._count, self._memory = scheduler, workers, memory
        self._reconnect, self._ahead = reconnect, ahead
        self._cluster: Any = None
        self._flying: dict[str, _Flight] = {}
        self._again: deque[_Flight] = deque()
        self._done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        self._capacity = ahead
        self._memories: dict[str, float] = {}
        self._checked: dict[str, str] = {}  # an error by worker, or an empty text
        self._refreshed = float("-inf")
        self._submitted = 0
        self._run = uuid.uuid4().hex  # the scheduler may still know tasks of an earlier client

    def __enter__(self) -> DaskEngine:
        """Connect to the scheduler, or start a local cluster."""
        distributed = _distributed()
        if not self._scheduler:
            with _interrupts_ignored():
                self._cluster = _local_cluster(distributed, self._count, self._memory)
        address = self._scheduler or self._cluster.scheduler_address
        try:
            # The client waits as long for its first connection as for a scheduler that restarts.
            first = min(_CONNECT, self._reconnect)
            distributed.Client(address, timeout=first, set_as_default=False).close()
            self.client = distributed.Client(address, timeout=self._reconnect)
        except (OSError, ValueError) as cause:
            raise PlanError(
                f"no Dask scheduler answers at {address}: {cause}\n"
                "  try   start one with `dask scheduler`, or pass --workers N"
            ) from cause
        self._refresh()
        return self

    def __exit__(self, *ended: object) -> None:
        """Disconnect, and stop a local cluster."""
        self.client.close()
        if self._cluster is not None:
            self._cluster.close()

    @property
    def dashboard(self) -> str:
        """The address of the dashboard."""
        return str(self.client.dashboard_link or "")

    @property
    def workers(self) -> int:
        """The number of workers that are connected now."""
        return len(self._memories)

    @property
    def running(self) -> int:
        """The number of tasks that workers run now, at most."""
        return min(len(self._flying), self.workers)

    def run(self, tasks: Iterable[Task], function: Function = run_task) -> Iterator[Any]:
        """Yield the row of each task as it is done."""
        waiting = _Waiting(iter(tasks))
        while self._flying or self._again or waiting.has_next:
            self._refresh()
            yield from self._fill(waiting, function)
            if not self._flying and not self._again and not waiting.has_next:
                return
            ended = self._wait()
            results = self._gather(ended)
            for future in ended:
                yield from self._finished(future, results)

    def _wait(self) -> list[Any]:
        """Wait for the next future that ends; return it with all others that ended."""
        try:
            ended = [self._done.get(timeout=_POLL)]
        except queue.Empty:
            self._check_connection()
            return []
        while not self._done.empty():
            ended.append(self._done.get())
        return ended

    def _gather(self, ended: list[Any]) -> dict[str, Any]:
        """Fetch the rows of finished futures in one call; leave out those that failed."""
        finished = [f for f in ended if f.status == "finished" and f.key in self._flying]
        try:
            rows = self.client.gather(finished)
        except Exception:  # fetched one by one, which finds the one that failed
            return {}
        return {future.key: row for future, row in zip(finished, rows, strict=True)}

    def _fill(self, waiting: _Waiting, function: Function) -> Iterator[Any]:
        """Submit tasks up to the capacity; yield the rows of those that fit on no worker."""
        groups: dict[tuple[float, str], list[_Flight]] = {}
        for flight in self._next(waiting):
            memory = flight.task.limits.memory
            largest = max(self._memories.values(), default=0.0)
            if largest and memory > largest:
                yield _too_large(flight.task, largest)
            else:
                groups.setdefault((memory, flight.avoid), []).append(flight)
        for (memory, avoid), flights in groups.items():
            self._submit(flights, memory, avoid, function)

    def _next(self, waiting: _Waiting) -> Iterator[_Flight]:
        """Yield tasks for the free places at the scheduler, once a quarter of them is free.

        Without a worker none is submitted: only workers say whether the cluster counts memory.
        """
        free = self._capacity - len(self._flying)
        if self.client.status != "running" or not self._memories or free < self._capacity / 4:
            return
        for _ in range(free):
            if self._again:
                yield self._again.popleft()
            elif waiting.has_next:
                yield _Flight(waiting.take())
            else:
                return

    def _submit(
        self, flights: list[_Flight], memory: float, avoid: str, function: Function
    ) -> None:
        options: dict[str, Any] = {}
        if any(self._memories.values()):
            options["resources"] = {"memory": memory}
        others = [address for address in self._memories if address != avoid]
        if others and (avoid or any(self._checked.values())):
            options["workers"] = others
        first = self._submitted + 1
        self._submitted += len(flights)
        keys = [f"fleet-{self._run}-{first + place}" for place in range(len(flights))]
        self._flying.update(zip(keys, flights, strict=True))
        futures = self.client.map(
            _run_on_worker,
            [function] * len(flights),
            [flight.task.as_dict() for flight in flights],
            [flight.attempt for flight in flights],
            key=keys,
            pure=False,
            **options,
        )
        for future in futures:
            future.add_done_callback(self._done.put)

    def _finished(self, future: Any, results: dict[str, Any]) -> Iterator[Any]:
        """Yield the row of a future that ended, or submit its task again."""
        flight = self._flying.pop(future.key, None)
        if flight is None:
            return
        if future.status == "cancelled":  # the connection to the scheduler was lost
            self._again.append(flight)
            return
        result = results.get(future.key) or self._result(future, flight)
        if result is None:
            self._again.append(flight)
        elif result["verdict"] == LOST and flight.attempt < RETRIES:
            self._again.append(_Flight(flight.task, flight.attempt + 1, result["worker"]))
        else:
            yield result

    def _result(self, future: Any, flight: _Flight) -> dict[str, Any] | None:
        """Return the row, or None if the connection was lost while it was fetched."""
        from concurrent.futures import CancelledError

        from distributed import KilledWorker

        try:
            return dict(future.result())
        except KilledWorker as error:
            cause = "workers were lost"
            lost = {"verdict": LOST, "cause": cause, "message": str(error)}
            return row(flight.task.as_dict(), {**lost, "attempt": RETRIES})
        except (CancelledError, OSError):
            return None
        except Exception as error:  # of a task that cannot be sent or read
            cause = f"a worker could not start the task: {type(error).__name__}: {error}"
            lost = {"verdict": LOST, "cause": cause[:200], "message": str(error)}
            return row(flight.task.as_dict(), {**lost, "attempt": flight.attempt})

    def _refresh(self) -> None:
        """Ask the scheduler for its workers from time to time."""
        now = time.monotonic()
        recent = now - self._refreshed < (_REFRESH if self._memories else _POLL)
        if recent or self.client.status != "running":
            return
        self._refreshed = now
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        self._check_imports([address for address in workers if address not in self._checked])
        self._memories = {
            address: float(worker["resources"].get("memory", 0.0))
            for address, worker in workers.items()
            if self._checked.get(address) == ""
        }
        threads = sum(worker["nthreads"] for worker in workers.values())
        self._capacity = max(self._ahead, _AHEAD * threads)

    def _check_imports(self, addresses: list[str]) -> None:
        """Ask new workers to import this module: one that cannot would end at its first task."""
        if not addresses:
            return
        found = self.client.run(
            pkgutil.resolve_name, f"{__name__}:_AHEAD", workers=addresses, on_error="return"
        )
        errors = {address: str(e) for address, e in found.items() if isinstance(e, Exception)}
        self._checked.update({address: errors.get(address, "") for address in found})
        for address, error in errors.items():
            warnings.warn(
                f"the worker {address} gets no task, because it cannot import coreai_torch: "
                f"{error}; install coreai-torch there",
                stacklevel=2,
            )

    def _check_connection(self) -> None:
        if self.client.status == "closed":
            raise PlanError(
                f"the Dask scheduler did not come back within {self._reconnect:g} s\n"
                "  try   start it again and run the same command: finished tasks are skipped"
            )


def _run_on_worker(function: Function, task: dict[str, Any], attempt: int) -> dict[str, Any]:
    from distributed import get_worker

    return function(task, attempt, get_worker().address)


def _too_large(task: Task, largest: float) -> dict[str, Any]:
    message = (
        f"limits.memory is {task.limits.memory:g} GB, the largest worker has {largest:.3g} GB\n"
        "  try   start fewer workers, so that each has more memory, or lower the limit"
    )
    result = {"verdict": LOST, "cause": "no worker has enough memory", "message": message}
    return row(task.as_dict(), result)


def _distributed() -> Any:
    try:
        import distributed
    except ImportError as cause:
        raise PlanError(
            "dask.distributed is not installed\n  try   pip install coreai-torch[fleet], or run "
            "without --workers and --scheduler"
        ) from cause
    return distributed


@contextmanager
def _interrupts_ignored() -> Iterator[None]:
    """Ignore Ctrl-C meanwhile, and in processes that start: they would print tracebacks."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _local_cluster(distributed: Any, workers: int, memory: float) -> Any:
    """Start worker processes with one thread each, and an equal share of the memory."""
    share = memory / workers if memory else distributed.system.MEMORY_LIMIT / 1e9 / workers
    return distributed.LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        memory_limit=0,  # the guard limits the child; the worker itself stays small
        resources={"memory": share},
        dashboard_address=":0",
        silence_logs=50,  # a worker that ends logs tracebacks of its last heartbeat as errors
    )
