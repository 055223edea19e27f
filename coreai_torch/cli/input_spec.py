"""Parser of `--input`: `x=f32[n:4,3]`, `ids=i64[1,9]<1000`, `x=@file.npy`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from .console import nearest

if TYPE_CHECKING:
    import torch

_DTYPES = {
    "f32": "float32",
    "f16": "float16",
    "bf16": "bfloat16",
    "f64": "float64",
    "i8": "int8",
    "i16": "int16",
    "i32": "int32",
    "i64": "int64",
    "u8": "uint8",
    "b1": "bool",
    "c64": "complex64",
}
_SHORT = {long: short for short, long in _DTYPES.items()}  # float32 is accepted too
_INPUT = re.compile(r"(?P<dtype>\w+)\[(?P<sizes>[^\]]*)\](?:<(?P<below>\d+))?")
_SIZE = re.compile(
    r"(?:(?P<name>[A-Za-z_]\w*):)?(?P<size>\d+)(?::(?P<least>\d+)\.\.(?P<most>\d+))?"
)
_HELP = "try  x=f32[1,3,224,224], x=f32[n:4,3] or x=f32[n:4:1..64,3] for a dynamic size"


@dataclass(frozen=True)
class Size:
    """A size, with the name and bounds of a dynamic one."""

    size: int
    name: str = ""
    least: int | None = None
    most: int | None = None


@dataclass(frozen=True)
class InputSpec:
    """An example input."""

    name: str  # empty for the only input of a model
    dtype: str
    sizes: tuple[Size, ...] = ()
    below: int = 2  # limit of integers; embeddings have at least two rows
    file: Path | None = None

    def tensor(self) -> torch.Tensor:
        """Return random values with a fixed seed, or the values of the file."""
        if self.file is not None:
            from .tensors import named, read

            return named(read(self.file), self.name, self.file)
        try:
            return self._drawn()
        except (RuntimeError, TypeError) as error:  # too large for the memory, or for an integer
            sizes = [size.size for size in self.sizes]
            raise typer.BadParameter(f"cannot create {self.name!r} with sizes {sizes}") from error

    def _drawn(self) -> torch.Tensor:
        import torch

        dtype = getattr(torch, _DTYPES[self.dtype])
        shape = [size.size for size in self.sizes]
        generator = torch.Generator().manual_seed(0)
        if dtype == torch.bool:
            return torch.rand(shape, generator=generator) < 0.5
        if dtype.is_floating_point or dtype.is_complex:
            wide = torch.complex64 if dtype.is_complex else torch.float32
            return torch.randn(shape, generator=generator, dtype=wide).to(dtype)
        return torch.randint(0, self.below, shape, generator=generator).to(dtype)

    def dynamic(self) -> dict[int, Any]:
        """Return the axes with dynamic sizes, in the form that `torch.export` takes."""
        import torch

        axes = {}
        for axis, size in enumerate(self.sizes):
            if size.name:
                bounds = {"min": size.least, "max": size.most}
                given = {k: v for k, v in bounds.items() if v is not None}
                axes[axis] = torch.export.Dim(size.name, **given)
        return axes


def parse(text: str) -> InputSpec:
    """Parse one input; an error shows an example."""
    name, found, what = text.partition("=")
    if not found:  # a model with one input
        name, what = "", text
    elif not name.isidentifier():
        raise typer.BadParameter(f"{text!r} is not an input; {_HELP}")
    if what.startswith("@"):
        return InputSpec(name, "", file=Path(what[1:]))
    read = _INPUT.fullmatch(what.replace(" ", ""))
    if read is None:
        raise typer.BadParameter(f"{text!r} is not an input; {_HELP}")
    dtype = _SHORT.get(read["dtype"], read["dtype"])
    if dtype not in _DTYPES:
        known = ", ".join(_DTYPES)
        near = nearest(dtype, [*_DTYPES, *_SHORT])
        raise typer.BadParameter(f"{dtype!r} is an unknown dtype; the dtypes are {known}{near}")
    parts = read["sizes"].removesuffix(",").split(",") if read["sizes"] else []
    sizes = tuple(_size(part, text) for part in parts)
    return InputSpec(name, dtype, sizes, _below(dtype, read["below"], text))


def check_sizes(specs: Sequence[InputSpec]) -> None:
    """Raise if a name of a dynamic size has two values or two ranges."""
    known: dict[str, Size] = {}
    for spec in specs:
        for size in spec.sizes:
            before = known.setdefault(size.name, size) if size.name else size
            if before != size:
                what = "values" if before.size != size.size else "ranges"
                one, other = (_written(which) for which in (before, size))
                raise typer.BadParameter(
                    f"the dynamic size {size.name!r} has two {what}, {one} and {other}; give "
                    "different sizes different names"
                )


def _written(size: Size) -> str:
    least, most = size.least, size.most
    bounds = "" if least is None and most is None else f":{least}..{most}"
    return f"{size.name}:{size.size}{bounds}"


def _below(dtype: str, given: str | None, text: str) -> int:
    """Return the limit of integers; reject a limit at which the dtype would wrap."""
    if given is None:
        return 2
    kind = re.fullmatch(r"([iu])(\d+)", dtype)
    if kind is None:
        raise typer.BadParameter(
            f"{text!r}: <{given} is for integers, and {dtype} is not an integer dtype"
        )
    most = 2 ** (int(kind[2]) - (kind[1] == "i"))
    if not 0 < int(given) <= most:
        raise typer.BadParameter(f"{text!r}: <{given} is not between 1 and {most}")
    return int(given)


def _size(part: str, text: str) -> Size:
    read = _SIZE.fullmatch(part)
    if read is None:
        raise typer.BadParameter(f"{part!r} is not a size, in {text!r}; {_HELP}")
    if read["name"] and int(read["size"]) < 2:
        name = read["name"]
        raise typer.BadParameter(
            f"{part!r}: torch fixes an example size of 0 or 1; try  {name}:2, or {name}:2:1..64 "
            "to allow 1 at run time"
        )
    if read["least"] and not read["name"]:
        raise typer.BadParameter(f"{part!r}: a dynamic size needs a name; try  n:{part}")
    if read["least"] and not int(read["least"]) <= int(read["size"]) <= int(read["most"]):
        raise typer.BadParameter(
            f"{part!r}: the example {read['size']} is not between {read['least']} and "
            f"{read['most']}"
        )
    bounds = [int(read[side]) if read[side] else None for side in ("least", "most")]
    return Size(int(read["size"]), read["name"] or "", *bounds)
