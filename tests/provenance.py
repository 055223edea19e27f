"""Where a stored score comes from: the commit and the versions that it was measured with.

`make sweep`, `tests/models/page.py` and `make bench` store what `current` returns beside their
figures, and the pages print it. Scores older than this file have the last commit that changed
them, and only the versions that were recorded or pinned at that commit.
"""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path

ROOT = Path(__file__).parents[1]
OLD = 200  # commits after which a score should be measured again
NOT_RECORDED = "not recorded"


class StaleScoreWarning(UserWarning):
    """A stored score is older than `OLD` commits."""


def current(*libraries: str, folders: dict[str, Path] | None = None) -> dict[str, str]:
    """Return the commit and the versions of Python, torch, coreai-core and `libraries`.

    `folders` has the libraries that are installed outside site-packages.
    """
    found = {"commit": commit(), "python": platform.python_version()}
    for name in ("torch", "coreai-core", *libraries):
        found[name] = _version(name)
    for name, folder in (folders or {}).items():
        (found[name],) = (d.version for d in distributions(name=name, path=[str(folder)]))
    return found


def _version(name: str) -> str:
    try:
        return version(name).partition("+")[0]
    except PackageNotFoundError:  # the benchmark of the fleet needs neither torch nor coreai-core
        return "not installed"


def commit() -> str:
    """Return the short hash of HEAD, with `-dirty` if the converter has uncommitted changes."""
    changed = _git("status", "--porcelain", "--", "coreai_torch")
    return (_git("rev-parse", "--short", "HEAD") or "unknown") + ("-dirty" if changed else "")


def describe(measured: dict[str, str]) -> str:
    """Return a sentence with the commit and all versions."""
    versions = {
        "Python" if name == "python" else name: value
        for name, value in measured.items()
        if name != "commit"
    }
    known = ", ".join(f"{n} {v}" for n, v in versions.items() if v != NOT_RECORDED)
    unknown = ", ".join(name for name, value in versions.items() if value == NOT_RECORDED)
    rest = f" (versions not recorded: {unknown})" if unknown else ""
    return f"Measured at commit `{measured['commit']}` with {known}{rest}."


def age(of: str) -> int | None:
    """Return the number of commits since `of`, or None if the history does not contain it."""
    count = _git("rev-list", "--count", f"{of.removesuffix('-dirty')}..HEAD")
    return int(count) if count else None


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except FileNotFoundError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
