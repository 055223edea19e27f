"""Find a scheme by its name."""

from __future__ import annotations

import re

import torch

from .scalars import Integers
from .schemes import Float4Scheme, Float8Scheme, IntegerScheme, PaletteScheme, Scheme
from .sparsity import Groups, Pruning, Share, SparseIntegerScheme, SparsePaletteScheme, SparseScheme

KNOWN = (
    "int8, int6, int4, int3, int2 (symmetric); uint8, uint6, uint4, uint3, uint2 (with a zero "
    "point); fp8, fp8e5m2, fp4; palettize8, palettize6, palettize4, palettize3, palettize2, "
    "palettize1; sparse50, or another percentage from 1 to 99; sparse2:4, or another n:m; a sum "
    "such as sparse50+int8, sparse2:4+int4 or sparse50+palettize4; any with a block size, as "
    "int4/32"
)


def scheme_named(name: str) -> Scheme | None:
    """Return the scheme of that name, or None."""
    if name == "fp4":
        return Float4Scheme()
    if name in ("fp8", "fp8e5m2"):
        element = torch.float8_e4m3fn if name == "fp8" else torch.float8_e5m2
        return Float8Scheme(name, element)
    if found := re.fullmatch(r"(u?)int([23468])", name):
        return IntegerScheme(Integers(int(found[2]), signed=not found[1]))
    if found := re.fullmatch(r"palettize([123468])", name):
        return PaletteScheme(int(found[1]))
    if name.startswith("sparse"):
        return _sparse(*name.partition("+")[::2])
    return None


def _sparse(name: str, values: str) -> Scheme | None:
    pruning = _pruning(name)
    if pruning is None:
        return None
    if found := re.fullmatch(r"palettize([123468])", values):
        return SparsePaletteScheme(pruning, int(found[1]))
    if found := re.fullmatch(r"int([23468])", values):
        return SparseIntegerScheme(pruning, Integers(int(found[1]), signed=True))
    return None if values else SparseScheme(pruning)


def _pruning(name: str) -> Pruning | None:
    if found := re.fullmatch(r"sparse([1-9]\d?)", name):
        return Share(int(found[1]))
    if found := re.fullmatch(r"sparse([1-9]\d?):([1-9]\d?)", name):
        kept, size = int(found[1]), int(found[2])
        return Groups(kept, size) if kept < size else None
    return None
