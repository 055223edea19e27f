"""Element types by name, for tools that use types which numpy lacks, such as `int4`."""

from __future__ import annotations

from typing import Any

import numpy as np


class Element:
    """Base of the element types, which are classes and are never instantiated."""

    name: str
    bits: int
    unsigned = False
    integer = False
    container: Any

    @classmethod
    def get_bitwidth(cls) -> int:
        """Return the number of bits of one element."""
        return cls.bits

    @classmethod
    def is_unsigned(cls) -> bool:
        """Return whether the type has no negative numbers."""
        return cls.unsigned


def _integer(bits: int, unsigned: bool) -> type[Element]:
    name = f"{'u' if unsigned else ''}int{bits}"
    width = max(bits, 8)
    container = getattr(np, f"{'u' if unsigned else ''}int{width}")
    fields = {"name": name, "bits": bits, "unsigned": unsigned, "integer": True}
    return type(name, (Element,), {**fields, "container": container})


def _float(bits: int) -> type[Element]:
    container = getattr(np, f"float{bits}")
    fields = {"name": f"fp{bits}", "bits": bits, "container": container}
    return type(f"fp{bits}", (Element,), fields)


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
    """Return the element type of that name."""
    if name not in _BY_NAME:
        raise ValueError(
            f"unknown element type {str(name)!r}, it must be one of {', '.join(_BY_NAME)}"
        )
    return _BY_NAME[name]


def builtin_to_string(element: type[Element]) -> str:
    """Return the name of an element type."""
    return element.name


def nptype_from_builtin(element: type[Element]) -> Any:
    """Return the numpy type that stores its elements, one byte each if they are narrower."""
    return element.container


def is_int(element: Any) -> bool:
    """Return whether `element` is an integer element type."""
    return isinstance(element, type) and issubclass(element, Element) and element.integer
