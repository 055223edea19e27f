"""Element types by name."""

from ..compression.dtype_names import *  # noqa: F403 - a door to all of them
