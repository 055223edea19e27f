"""Which versions of torch this package is tested with. Does not import torch."""

from __future__ import annotations

import re
import warnings

from .errors import TorchVersionWarning, UnsupportedTorchError

OLDEST = "2.9"
NEWEST = "2.15"
TESTED = f"{OLDEST} to {NEWEST}"


def is_too_old(version: str) -> bool:
    return _release(version) < _release(OLDEST)


def is_too_new(version: str) -> bool:
    return _release(version) > _release(NEWEST)


def check(version: str) -> None:
    """Raise for a torch that cannot work; warn for one that is newer than the tested ones."""
    if is_too_old(version):
        raise UnsupportedTorchError(
            f"coreai_torch needs torch {OLDEST} or later, and torch {version} is installed\n"
            f"  try   pip install 'torch>={OLDEST}'"
        )
    if is_too_new(version):
        warnings.warn(
            f"coreai_torch is tested with torch {TESTED}, and torch {version} is installed\n"
            "  try   run `coreai-torch ops --check` for the ops that your model uses",
            TorchVersionWarning,
            stacklevel=2,
        )


def _release(version: str) -> tuple[int, int]:
    """Return major and minor version: (2, 15) for `2.15.0a0+git1234`."""
    major, minor = re.match(r"(\d+)\.(\d+)", version).groups()  # type: ignore[union-attr]
    return int(major), int(minor)
