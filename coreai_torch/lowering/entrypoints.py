"""Check the names of entry points against the staged ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..errors import ArgumentTypeError, NamingError, NothingStagedError


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


def names_to_convert(entrypoints: Sequence[str] | None, staged: Collection[str]) -> list[str]:
    """Return the named entry points, or all staged ones; raise if there are none."""
    if not staged:
        raise NothingStagedError(
            "No programs to convert: nothing is staged\n"
            "  try   call add_exported_program(...) or add_pytorch_module(...) first"
        )
    names = staged_names(entrypoints, staged)
    if not names:
        raise NamingError(
            f"entrypoints is empty; the staged entrypoints are {list(staged)}\n"
            "  try   pass one or more of these, or omit the argument to convert all"
        )
    return names
