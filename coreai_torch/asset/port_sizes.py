"""Choose and check the dynamic sizes of a program's ports by their stored names and ranges."""

from __future__ import annotations

import ast
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import ConversionError
from .metadata import SIZES, annotation
from .reading import Source, Type

_UNNAMED = 1  # a size that the program stores nothing about
_ARITHMETIC = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul}
_ARITHMETIC |= {ast.FloorDiv: operator.floordiv}


@dataclass(frozen=True)
class _Size:
    """A dynamic size: its name or formula, its bounds, and its value in the example inputs."""

    text: str
    low: int | None
    high: int | None
    example: int | None = None

    def __str__(self) -> str:
        return f"{self.text} in {self.low or 0}..{'' if self.high is None else self.high}"

    def allows(self, value: int) -> bool:
        """Return whether a value is within the bounds."""
        return (self.low or 0) <= value and (self.high is None or value <= self.high)


@dataclass
class PortSizes:
    """The dynamic sizes of one function. `chosen` has the value of each name that was needed."""

    stored: Mapping[str, Mapping[str, Sequence[Any]]]
    given: Mapping[str, int] = field(default_factory=dict)
    every: int | None = None  # the value of all sizes that `given` does not name
    chosen: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(
        cls, source: Source, function: str, given: Mapping[str, int] | int | None = None
    ) -> PortSizes:
        """Return the sizes that a program or an asset stores, with values by name or for all."""
        stored = annotation(source, SIZES).get(function, {})
        if isinstance(given, Mapping):
            made = cls(stored, given)
            made.check_names()
            return made
        return cls(stored, every=given)

    def shape(self, port: str, type_: Type) -> list[int]:
        """Return the sizes of a port: those that were asked for, else those of the example."""
        stored = {int(axis): _Size(*row) for axis, row in self.stored.get(port, {}).items()}
        return [
            size if size >= 0 else self._value(stored.get(axis), port)
            for axis, size in enumerate(type_.shape)
        ]

    def check(self, port: str, shape: Sequence[int]) -> None:
        """Raise if a size of a port is outside the range that the program was converted for."""
        for axis, row in self.stored.get(port, {}).items():
            size, value = _Size(*row), shape[int(axis)] if int(axis) < len(shape) else None
            if value is not None and not size.allows(value):
                raise ConversionError(
                    f"{port!r} has {value} elements along axis {axis}, but the program was "
                    f"converted for {size}\n  try   pass an input of that range"
                )

    def check_names(self) -> None:
        """Raise if a name that was given is none of the program's."""
        sizes = [row[0] for axes in self.stored.values() for row in axes.values()]
        names = sorted({name for text in sizes for name in _names(text)})
        for name in self.given:
            if name not in names:
                known = f"one of {', '.join(names)}" if names else "no size: all are static"
                raise ConversionError(f"no dynamic size is called {name!r}\n  try   pass {known}")

    def __str__(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.chosen.items())

    def _value(self, size: _Size | None, port: str) -> int:
        if size is None:
            self.chosen.setdefault("other sizes", self.every or _UNNAMED)
            return self.every or _UNNAMED
        names = _names(size.text)
        asked = self.every if size.text.isidentifier() else None
        if asked is None and names and all(name in self.given for name in names):
            asked = _evaluated(size.text, self.given)
        value = asked if asked is not None else self._default(size)
        if not size.allows(value):
            raise ConversionError(
                f"{size.text}={value} is outside the range of {port!r}: {size}\n"
                "  try   pass a size of that range"
            )
        if size.text.isidentifier():
            self.chosen[size.text] = value
        return value

    def _default(self, size: _Size) -> int:
        """Return the size of the example, or of an asset without one the least above 0."""
        names = _names(size.text)
        if not size.text.isidentifier() and names and all(name in self.chosen for name in names):
            return _evaluated(size.text, self.chosen)
        return size.example if size.example is not None else max(size.low or 0, _UNNAMED)


def _names(text: str) -> list[str]:
    """Return the names in a formula such as `2*batch`."""
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return []
    return [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]


def _evaluated(text: str, values: Mapping[str, int]) -> int:
    return _number(ast.parse(text, mode="eval").body, values)


def _number(node: ast.AST, values: Mapping[str, int]) -> int:
    """Return the value of a formula of names, integers, sums and products."""
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        left, right = _number(node.left, values), _number(node.right, values)
        return int(_ARITHMETIC[type(node.op)](left, right))
    raise ConversionError(f"the formula of a size has {ast.unparse(node)!r}, which is not known")


def parse_sizes(texts: Iterable[str]) -> dict[str, int] | int | None:
    """Return the values of `h=480,w=640`, or of `8` for all dynamic sizes; None for no text."""
    parts = [part.strip() for text in texts for part in text.split(",") if part.strip()]
    if not parts:
        return None
    try:
        if len(parts) == 1 and "=" not in parts[0]:
            return _positive(parts[0])
        return {name.strip(): _positive(value) for name, value in (p.split("=") for p in parts)}
    except ValueError:
        raise ConversionError(
            f"{', '.join(parts)!r} is not a size\n  try   pass h=480,w=640, or 8 for all of them"
        ) from None


def _positive(text: str) -> int:
    value = int(text)
    if value < 0:
        raise ValueError(text)
    return value
