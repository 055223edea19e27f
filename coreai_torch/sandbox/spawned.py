"""The start of a child that has its own interpreter: `child.Child.spawn` calls `main` there."""

from __future__ import annotations

import os
from importlib import import_module

from .channel import Channel


def main() -> None:
    """Call the function that the first request names; all output goes to standard error."""
    channel = Channel(os.dup(1), os.dup(0))
    nowhere = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nowhere, 0)
    os.dup2(2, 1)
    target, arguments = next(iter(channel))
    module, _, function = target.partition(":")
    getattr(import_module(module), function)(channel, *arguments)
