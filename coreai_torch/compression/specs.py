"""Name a scheme with its block size: `int4/32`."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import ConversionError
from .scheme_names import KNOWN, scheme_named
from .schemes import Scheme


@dataclass(frozen=True)
class Spec:
    """A scheme of `compress` with its block size; `str(spec)` is `int4/32`."""

    scheme: str
    block_size: int | None = None
    inputs: str | None = None  # `int8` rounds the inputs of the layer to 8 bits

    def __str__(self) -> str:
        """Return the text that `to_spec` reads."""
        return self.scheme if self.block_size is None else f"{self.scheme}/{self.block_size}"

    def resolve(self) -> tuple[Scheme, int | None]:
        """Return the scheme and its block size; raise if they are unknown or do not combine."""
        found = scheme_named(self.scheme)
        if found is None:
            raise ConversionError(f"unknown scheme {self.scheme!r}\n  try   use one of {KNOWN}")
        if self.block_size is None:
            return found, found.block
        if not found.takes_block:
            raise ConversionError(
                f"{self.scheme} does not use blocks, but block_size is {self.block_size}\n"
                f"  try   call compress(model, {self.scheme!r})"
            )
        if self.block_size < 1:
            raise ConversionError(
                f"block_size is {self.block_size}, it must be at least 1\n"
                "  try   pass block_size=32"
            )
        return found, self.block_size


def to_spec(given: str | Spec, block_size: int | None = None) -> Spec:
    """Return the spec that a text names, `int4` or `int4/32`; raise if the scheme is unknown."""
    if not isinstance(given, str | Spec):
        raise ConversionError(
            f"a scheme is a text, not {given!r}\n  try   pass 'int8' or 'int4/32'"
        )
    if isinstance(given, str):
        name, slash, block = given.partition("/")
        if slash and not block.isdecimal():
            raise ConversionError(
                f"unknown scheme {given!r}: {block!r} is not a block size\n"
                "  try   write the block size as a number: 'int4/32'"
            )
        given = Spec(name, int(block) if slash else block_size)
    given.resolve()
    return given
