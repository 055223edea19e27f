"""When a converted program is optimized."""

from __future__ import annotations

import os

from ..errors import ArgumentTypeError, ConversionError

OPTIMIZE = "COREAI_TORCH_OPTIMIZE"  # environment variable: 1 optimizes in `to_coreai`, 0 never


def optimize_option(given: bool | None) -> bool | None:
    """Return the argument, or what the environment says: True, False, or None for at save."""
    if given is not None:
        if not isinstance(given, bool):
            raise ArgumentTypeError(f"optimize is {given!r}\n  try   pass True, False or None")
        return given
    text = os.environ.get(OPTIMIZE, "")
    if text not in ("", "0", "1"):
        raise ConversionError(f"{OPTIMIZE} is {text!r}\n  try   set it to 1 or 0")
    return None if text == "" else text == "1"
