"""Check the names of entry points against the staged ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..errors import ArgumentTypeError, NamingError


def check_unused(entrypoint: str, staged: Collection[str]) -> None:
    """Raise unless an entry point can be staged under this name."""
    if not (isinstance(entrypoint, str) and entrypoint):
        raise NamingError(f"entrypoint_name is {entrypoint!r}\n  try   pass a name like 'main'")
    if entrypoint in staged:
        raise NamingError(
            f"the entrypoint {entrypoint!r} is staged already; there are "
            f"{list(staged)}\n  try   pass another entrypoint_name, or call "
            f"clear(entrypoints=[{entrypoint!r}]) first"
        )


def staged_names(entrypoints: Sequence[str] | None, staged: Collection[str]) -> list[str]:
    """Return the named entry points, or all staged ones; raise for an unknown name."""
    if entrypoints is None:
        return list(staged)
    if not isinstance(entrypoints, Collection):
        raise ArgumentTypeError(
            f"entrypoints is {entrypoints!r}\n  try   pass some of {list(staged)}"
        )
    names = [entrypoints] if isinstance(entrypoints, str) else list(entrypoints)
    unknown = [name for name in names if name not in staged]
    if unknown:
        raise NamingError(
            f"no entrypoint is called {', '.join(map(repr, unknown))}; the staged entrypoints "
            f"are {list(staged)}\n  try   pass one of these"
        )
    return list(dict.fromkeys(names))
