"""Run a native step in a forked child, so that a crash is an error and not the end of the process.

coreai-core 1.0.0b3 ends the process when it fails: `_save_bytecode` on a full disk prints "LLVM
ERROR: IO failure on output stream" and calls `exit(1)`. A forked child shares the memory of the
program, so no weights are copied, and MLIR runs one thread per context, so the child lacks none.

Only Linux forks. On macOS the child of a process with threads may not use the system's frameworks;
there the step runs in this process. The commands of the command line are safe on both: see
`command`.
"""

from __future__ import annotations

import faulthandler
import gc
import os
import sys
from collections.abc import Callable

from ..errors import NativeError
from . import processes
from .call import answer, result
from .channel import Channel
from .child import IDLE, Child, Limits

_IDLE = 30.0  # seconds after which a child waits for a lock that a thread of its parent had
_REPORT = "report this with the model; verify(...) names the op that crashed"


def run_step(
    step: Callable[[], None], doing: str, started: Callable[[], None] = lambda: None
) -> bool:
    """Run the step in a child; return False if it must run in this process instead.

    An exception of the step is raised here. A crash raises a `NativeError`. With the environment
    variable `COREAI_TORCH_FORK=0`, no child is started. `started` is called in this process when
    the child runs.
    """
    if not sys.platform.startswith("linux") or os.environ.get("COREAI_TORCH_FORK") == "0":
        return False
    try:
        child = Child.fork(lambda channel: _run(step, channel))
    except OSError:
        return False
    outcomes: list[tuple[None, BaseException | None]] = []
    with child:
        started()
        ended = child.until_end(outcomes.append, Limits(idle=_IDLE))
    if ended.limit == IDLE:
        return False
    if not outcomes:
        raise NativeError(ended.message(f"while {doing}", _REPORT))
    result(outcomes[0])
    if ended.log:
        os.write(2, ended.log.encode())
    return True


def _run(step: Callable[[], None], channel: Channel) -> None:
    gc.disable()  # finalizers of the parent's objects must not run twice
    faulthandler.disable()
    processes.forbid_core_dump()
    answer(channel, step)
