"""When and with which versions a page was made."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version

_LIBRARIES = ("coreai-torch", "coreai-core", "torch")


@dataclass(frozen=True)
class Origin:
    """The date of a page, and the versions of the libraries that read the program."""

    date: datetime
    versions: tuple[tuple[str, str], ...]

    def lines(self) -> list[str]:
        """Return the date and each version as text."""
        date = f"{self.date:%-d %B %Y, %H:%M} UTC"
        return [date, *(f"{name} {number}" for name, number in self.versions)]


def origin() -> Origin:
    """Return the present; `SOURCE_DATE_EPOCH` sets the date for reproducible builds."""
    given = os.environ.get("SOURCE_DATE_EPOCH", "")
    date = datetime.fromtimestamp(int(given), UTC) if given.isdigit() else datetime.now(UTC)
    versions = [(name, _version(name)) for name in _LIBRARIES]
    system = platform.system().replace("Darwin", "macOS")
    versions += [("Python", platform.python_version()), (system, platform.machine())]
    return Origin(date, tuple(versions))


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "(version unknown)"
