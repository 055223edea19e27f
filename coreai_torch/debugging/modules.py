"""The module and source line that each operation comes from, and the tree of modules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from ..asset import reading
from .graph import operation_ids

UNATTRIBUTED = "<unknown>"
Item = TypeVar("Item")


@dataclass(frozen=True)
class SourceLine:
    """A place in a file; `col` is 0 where the program records none."""

    filename: str
    line: int
    col: int = 0


@dataclass(frozen=True)
class Attribution:
    """The module of an operation, as a path of names, and its source line."""

    module: tuple[str, ...] = ()
    source: SourceLine | None = None

    @property
    def label(self) -> str:
        """The path as one name, or `UNATTRIBUTED`."""
        return ".".join(self.module) or UNATTRIBUTED


def attributions_by_op_id(program: reading.Source) -> dict[int, Attribution]:
    """Return the module and source line of each operation."""
    numbered = operation_ids(reading.read(program, largest=0))
    return {number: _of_place(op.place) for _, op, number in numbered}


def _of_place(place: reading.Place) -> Attribution:
    source = SourceLine(place.file, place.line) if place.line else None
    return Attribution(tuple(place.module.split(".")) if place.module else (), source)


@dataclass
class ModuleNode(Generic[Item]):
    """A module with its items, and its submodules, those with the most items first."""

    name: str
    items: list[Item] = field(default_factory=list)
    children: list[ModuleNode[Item]] = field(default_factory=list)

    @property
    def type_name(self) -> str:
        """The name without its number: `Linear` for `Linear$3`."""
        return self.name.partition("$")[0]

    @property
    def instance(self) -> int | None:
        """The number: 3 for `Linear$3`."""
        number = self.name.partition("$")[2]
        return int(number) if number.isdigit() else None

    def all_items(self) -> list[Item]:
        """Return the items of the module and of its submodules."""
        return list(self._items())

    def _items(self) -> Iterator[Item]:
        yield from self.items
        for child in self.children:
            yield from child._items()

    def find(self, name: str) -> ModuleNode[Item] | None:
        """Return the first submodule with a name, or with a path such as `encoder.0`."""
        first, _, rest = name.partition(".")
        for child in self.children:
            found = child.find(rest) if rest and child.name == first else None
            if child.name == name or found is not None:
                return child if child.name == name else found
        inner = (child.find(name) for child in self.children)
        return next((found for found in inner if found is not None), None)

    def to_dict(self, item: Callable[[Item], Any] = lambda item: item) -> dict[str, Any]:
        """Return plain data; `item` describes an item."""
        return {
            "name": self.name,
            "items": [item(each) for each in self.items],
            "children": [child.to_dict(item) for child in self.children],
        }


def build_module_tree(pairs: Iterable[tuple[Attribution, Item]]) -> ModuleNode[Item]:
    """Return the tree of modules of items; those without a module are in `UNATTRIBUTED`."""
    root: ModuleNode[Item] = ModuleNode("")
    for attribution, item in pairs:
        node = root
        for name in attribution.module or (UNATTRIBUTED,):
            child = next((c for c in node.children if c.name == name), None)
            if child is None:
                child = ModuleNode(name)
                node.children.append(child)
            node = child
        node.items.append(item)
    _sort(root)
    return root


def _sort(node: ModuleNode[Item]) -> int:
    """Put the heaviest children first, and return the number of items."""
    weights = {id(child): _sort(child) for child in node.children}
    node.children.sort(key=lambda child: (-weights[id(child)], child.name))
    return len(node.items) + sum(weights.values())
