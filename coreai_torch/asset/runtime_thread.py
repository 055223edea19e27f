"""Load an asset, and wait for calls of the runtime, in a thread with its own event loop."""

from __future__ import annotations

import asyncio
import atexit
import time
import weakref
from collections.abc import Awaitable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

from coreai.authoring import AIModelAsset

# A thread of the runtime (coreai-core 1.0.0b3) may request the interpreter lock while Python shuts
# down, which aborts the process; seconds to wait for it.
_EXIT_DELAY = 0.1


class RuntimeThread:
    """A thread that runs coroutines of the runtime, one after the other.

    A notebook already runs an event loop in the main thread.
    """

    def __init__(self, name: str, resources: ExitStack | None = None) -> None:
        """Start the thread; `resources` are closed with it."""
        self._thread = ThreadPoolExecutor(1, name)
        self._loop = asyncio.new_event_loop()
        weakref.finalize(self, _release, self._thread, self._loop, resources or ExitStack())
        atexit.register(time.sleep, _EXIT_DELAY)

    def wait(self, work: Awaitable[Any]) -> Any:
        """Return the result of a coroutine; calls of other threads wait for it."""
        return self._thread.submit(self._loop.run_until_complete, work).result()


async def load_model(asset: AIModelAsset) -> Any:
    """Load the model; it does not need the files that the context removes on exit."""
    async with asset.executable() as model:
        return model


def _release(thread: ThreadPoolExecutor, loop: asyncio.AbstractEventLoop, stack: ExitStack) -> None:
    thread.shutdown()
    loop.close()
    stack.close()
