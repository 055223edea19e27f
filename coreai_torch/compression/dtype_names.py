"""Element types by name, for tools that speak of `int4` where torch has no such number."""

from __future__ import annotations

from typing import Any

import numpy as np


class Element:
    """An element type; each is a class of its own, and none is ever made into an object."""

    name: str
    bits: int
    unsigned = False
    integer = False
    container: Any

    @classmethod
    def get_bitwidth(cls) -> int:
        """The bits of one element."""
        return cls.bits

    @classmethod
    def is_unsigned(cls) -> bool:
        """Whether there are no negative numbers."""
        return cls.unsigned


def _integer(bits: int, unsigned: bool) -> type[Element]:
    name = f"{'u' if unsigned else ''}int{bits}"
    width = max(bits, 8)
    held = getattr(np, f"{'u' if unsigned else ''}int{width}")
    facts = {"name": name, "bits": bits, "unsigned": unsigned, "integer": True, "container": held}
    return type(name, (Element,), facts)


def _float(bits: int) -> type[Element]:
    held = getattr(np, f"float{bits}")
    return type(f"fp{bits}", (Element,), {"name": f"fp{bits}", "bits": bits, "container": held})


int1, int2, int3, int4, int6, int8, int16, int32, int64 = (
    _integer(bits, unsigned=False) for bits in (1, 2, 3, 4, 6, 8, 16, 32, 64)
)
uint1, uint2, uint3, uint4, uint6, uint8, uint16, uint32, uint64 = (
    _integer(bits, unsigned=True) for bits in (1, 2, 3, 4, 6, 8, 16, 32, 64)
)
fp16, fp32, fp64 = (_float(bits) for bits in (16, 32, 64))

_ALL = [
    *(int1, int2, int3, int4, int6, int8, int16, int32, int64),
    *(uint1, uint2, uint3, uint4, uint6, uint8, uint16, uint32, uint64),
    *(fp16, fp32, fp64),
]
_BY_NAME = {element.name: element for element in _ALL}


def string_to_builtin(name: str) -> type[Element]:
    """The element type of that name."""
    if name not in _BY_NAME:
        raise ValueError(f"no element type {str(name)!r}: one of {', '.join(_BY_NAME)}")
    return _BY_NAME[name]


def builtin_to_string(element: type[Element]) -> str:
    """The name of an element type."""
    return element.name


def nptype_from_builtin(element: type[Element]) -> Any:
    """The numpy type in which its elements are held, a byte each if they are narrower."""
    return element.container


def is_int(element: Any) -> bool:
    """Whether it is an element type of integers."""
    return isinstance(element, type) and issubclass(element, Element) and element.integer
