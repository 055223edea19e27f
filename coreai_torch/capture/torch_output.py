"""Keep torch's log lines and graph dumps off the terminal while a model is exported."""

from __future__ import annotations

import logging
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

from ..progress import is_verbose
from ..torch_compat import print_no_graphs

# torch 2.9 to 2.15 raise it themselves, each time that a tree of arguments is copied.
warnings.filterwarnings("ignore", ".*isinstance.treespec, LeafSpec.*", FutureWarning)


@contextmanager
def quiet_torch() -> Iterator[None]:
    """Drop log lines and graph dumps of torch that are written in this thread."""
    if is_verbose() or os.environ.get("TORCH_LOGS"):  # who sets it wants to read them
        yield
        return
    thread = threading.get_ident()

    def is_other_thread(record: logging.LogRecord) -> bool:
        return record.thread != thread

    handlers = _torch_handlers()
    for handler in handlers:
        handler.addFilter(is_other_thread)
    try:
        with print_no_graphs():
            yield
    finally:
        for handler in handlers:
            handler.removeFilter(is_other_thread)


def _torch_handlers() -> set[logging.Handler]:
    known = list(logging.root.manager.loggerDict.items())
    loggers = [logger for name, logger in known if name == "torch" or name.startswith("torch.")]
    return {h for logger in loggers if isinstance(logger, logging.Logger) for h in logger.handlers}
