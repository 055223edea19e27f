"""Element types by name."""

from ..compression.dtype_names import *  # noqa: F403 - re-export all of them
