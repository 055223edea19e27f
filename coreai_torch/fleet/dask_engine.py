"""Run tasks on a Dask cluster: a local one, or any scheduler by its address.

The client keeps a limited number of tasks at the scheduler, so that neither grows with the plan. A
task that the cluster loses is submitted again: its row is returned once.
"""

from __future__ import annotations

import queue
import time
import uuid
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from ..errors import PlanError
from .columns import LOST, MEMORY, row
from .isolating import run_task
from .local_engine import RETRIES, Function
from .task import Task

_AHEAD = 4  # tasks at the scheduler for each thread of a worker
_LEAST_AHEAD = 16
_RECONNECT = 600.0  # seconds to wait for a scheduler that restarts
_POLL = 1.0  # seconds between two looks at the connection
_REFRESH = 5.0  # seconds between two looks at the workers


@dataclass
class _Flight:
    """A task at the scheduler."""

    task: Task
    attempt: int = 1
    avoid: str = ""  # address of a worker whose disk is full


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
        self._refreshed = float("-inf")
        self._submitted = 0
        self._run = uuid.uuid4().hex  # the scheduler may still know tasks of an earlier client

    def __enter__(self) -> DaskEngine:
        """Connect to the scheduler, or start a local cluster."""
        distributed = _distributed()
        if not self._scheduler:
            self._cluster = _local_cluster(distributed, self._count, self._memory)
        address = self._scheduler or self._cluster.scheduler_address
        try:
            self.client = distributed.Client(address, timeout=self._reconnect)
        except (OSError, ValueError) as cause:
            raise PlanError(
                f"no Dask scheduler answers at {address}: {cause}\n"
                "  try   start one with `dask scheduler`, or pass --workers N"
            ) from cause
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        waiting = iter(tasks)
        while True:
            self._refresh()
            yield from self._fill(waiting, function)
            if not self._flying and not self._again:
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

    def _fill(self, waiting: Iterator[Task], function: Function) -> Iterator[Any]:
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

    def _next(self, waiting: Iterator[Task]) -> Iterator[_Flight]:
        """Yield tasks for the free places at the scheduler, once a quarter of them is free."""
        free = self._capacity - len(self._flying)
        if self.client.status != "running" or free < self._capacity / 4:
            return
        for _ in range(free):
            if self._again:
                yield self._again.popleft()
            elif (task := next(waiting, None)) is not None:
                yield _Flight(task)
            else:
                return

    def _submit(
        self, flights: list[_Flight], memory: float, avoid: str, function: Function
    ) -> None:
        options: dict[str, Any] = {}
        if any(self._memories.values()):
            options["resources"] = {"memory": memory}
        others = [address for address in self._memories if address != avoid]
        if avoid and others:
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

    def _refresh(self) -> None:
        """Ask the scheduler for its workers from time to time."""
        now = time.monotonic()
        if now - self._refreshed < _REFRESH or self.client.status != "running":
            return
        self._refreshed = now
        workers = self.client.scheduler_info(n_workers=-1)["workers"]
        self._memories = {
            address: float(worker["resources"].get("memory", 0.0))
            for address, worker in workers.items()
        }
        threads = sum(worker["nthreads"] for worker in workers.values())
        self._capacity = max(self._ahead, _AHEAD * threads)

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
    message = f"needs {task.limits.memory:g} GB, the largest worker has {largest:g} GB"
    result = {"verdict": MEMORY, "cause": "no worker has enough memory", "message": message}
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
