"""Read a finished program as plain data: functions, ops, constants and their origin."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import torch
from coreai._compiler import ir
from coreai._compiler._mlir_libs._coreaiIR._bindings.compiler import copy_constant_value_to_array
from coreai._compiler._mlir_libs._coreaiIR._bindings.mlir import (  # type: ignore[attr-defined]
    get_file_line_col_locations,  # absent from the stub
    get_operation_id,
)
from coreai.authoring import AIModelAsset, AIProgram

from .. import errors
from ..ir import types
from . import resources
from .mlir_module import mlir_module_of
from .resources import read_steadily

DYNAMIC = -1

# The torch dtype for each element type. Types narrower than a byte use one byte each; every
# f4E2M1FN is also a f8E4M3FN.
_CARRIED = {
    **types.BY_NAME,
    "si64": torch.int64,
    "ui64": torch.uint64,
    "f64": torch.float64,
    "si2": torch.int8,
    "si4": torch.int8,
    **{f"ui{bits}": torch.uint8 for bits in (1, 2, 3, 4, 6)},
    "f4E2M1FN": torch.float8_e4m3fn,
    "f8E8M0FNU": torch.float8_e8m0fnu,
}
_FLOAT4 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])


@dataclass(frozen=True)
class Type:
    """The type of a value: a tensor, a sparse tensor, the handle of a state, or another kind.

    `element` is the dialect's name of the element type; unknown sizes are `DYNAMIC`.
    """

    kind: str
    shape: tuple[int, ...] = ()
    element: str = ""

    @property
    def dtype(self) -> torch.dtype:
        """The torch dtype for the elements."""
        return _CARRIED[self.element]

    def __str__(self) -> str:
        sizes = "x".join("?" if d == DYNAMIC else str(d) for d in self.shape)
        inner = f"{sizes}x{self.element}" if sizes else self.element
        return f"{self.kind}<{inner}>" if inner else self.kind


@dataclass(frozen=True)
class Place:
    """The origin of an op, as far as the program records it."""

    module: str = ""
    file: str = ""
    line: int = 0
    fx_node: str = ""
    target: str = ""
    op_id: int | None = None
    callers: tuple[tuple[str, int], ...] = ()  # files and lines around `line`, innermost first
    weight: str = ""  # the name of a constant that is stored without one

    def __str__(self) -> str:
        parts = [
            f"module {self.module!r}" if self.module else "",
            f"%{self.fx_node} = {self.target}" if self.fx_node else "",
            f'File "{self.file}", line {self.line}' if self.line else "",
        ]
        return ", ".join(part for part in parts if part)


@dataclass(frozen=True)
class Block:
    """The arguments and ops of a region; the last op is the terminator."""

    arguments: tuple[int, ...]
    types: tuple[Type, ...]
    ops: tuple[Op, ...]


@dataclass(frozen=True)
class Op:
    """One operation; values are numbers that are unique in their function."""

    name: str
    operands: tuple[int, ...]
    results: tuple[int, ...]
    types: tuple[Type, ...]  # of the results
    operand_types: tuple[Type, ...]
    attributes: Mapping[str, Any]
    regions: tuple[Block, ...]
    place: Place
    blob: str = ""  # the name of a constant that is stored beside the code; equal if shared


@dataclass(frozen=True)
class Port:
    """The name and type of an input or output of a function."""

    name: str
    type: Type


@dataclass(frozen=True)
class Function:
    """A graph of the program."""

    name: str
    inputs: tuple[Port, ...]  # states among them, as handles
    outputs: tuple[Port, ...]
    body: Block
    size: int  # number of values
    is_private: bool
    composite: str = ""  # the name of the composite, if it is one


@dataclass(frozen=True)
class Program:
    """All graphs of a program, by name, in order."""

    functions: Mapping[str, Function] = field(default_factory=dict)


Source: TypeAlias = "AIProgram | AIModelAsset | Path | str"


def read(source: Source, *, largest: int | None = None) -> Program:
    """Read an `AIProgram`, an asset, or the path of one.

    Constants of more than `largest` bytes come without their value, which may be a copy.
    """
    blobs: Mapping[str, torch.Tensor] = {}
    if isinstance(source, str | Path):
        source, blobs = read_steadily(Path(source), partial(_opened, Path(source)))
    elif isinstance(source, AIModelAsset):
        source, blobs = read_steadily(Path(source.path), partial(_opened, source))
    if not isinstance(source, AIProgram):
        is_model = isinstance(source, torch.nn.Module | torch.export.ExportedProgram)
        hint, kind = "convert it first; " * is_model, type(source).__name__
        raise errors.ArgumentTypeError(
            f"{'an' if kind[0] in 'AEIOU' else 'a'} {kind} is not a Core AI program\n"
            f"  try   {hint}pass an AIProgram, an AIModelAsset or the path of an .aimodel"
        )
    return read_module(mlir_module_of(source), largest=largest, blobs=blobs)


def read_module(
    module: Any,
    *,
    largest: int | None = None,
    blobs: Mapping[str, torch.Tensor] | None = None,
) -> Program:
    """Read a raw module, which may still be open; `blobs` are the files of its constants."""
    operations = module.body.operations
    graphs = [op for op in operations if op.operation.name == "coreai.graph"]
    values: dict[tuple[str, Type], torch.Tensor] = {}
    read_ = (_Reader(blobs or {}, largest, values).function(graph) for graph in graphs)
    return Program({function.name: function for function in read_})


def _opened(source: AIModelAsset | Path) -> tuple[AIProgram, Mapping[str, torch.Tensor]]:
    """Return the program of an asset, and its blobs by name."""
    asset = resources.asset_at(source) if isinstance(source, Path) else source
    blobs = resources.mapped(Path(asset.path) / resources.BYTECODE)
    return resources.program_of(asset), blobs


def read_op(op: Any) -> Op:
    """Read one op of a raw module; values are numbered within it."""
    return _Reader({}, None, {})._op(op)


class _Reader:
    """Reads one graph; values are numbered in order of appearance.

    `values` has the constants that are stored as blobs, which the graphs of a program share.
    """

    def __init__(
        self,
        blobs: Mapping[str, torch.Tensor],
        largest: int | None,
        values: dict[tuple[str, Type], torch.Tensor],
    ) -> None:
        self._blobs = blobs
        self._largest = largest
        self._values = values
        self._numbers: dict[ir.Value, int] = {}
        self._types: dict[str, Type] = {}
        self._places: dict[str, Place] = {}

    def function(self, graph: Any) -> Function:
        operation = graph.operation
        attributes = operation.attributes
        body = self._block(next(iter(operation.regions[0])))
        taken = _names(attributes, "arg_attrs", len(body.arguments))
        last = body.ops[-1]
        given = _names(attributes, "res_attrs", len(last.operands))
        outputs = zip(given, last.operand_types, strict=True)
        composite = str(attributes["composite_decl"]) if "composite_decl" in attributes else ""
        declared = re.search(r'composite_declaration<"([^"]*)"', composite)
        return Function(
            attributes["sym_name"].value,
            tuple(Port(n, t) for n, t in zip(taken, body.types, strict=True)),
            tuple(Port(n, t) for n, t in outputs),
            body,
            len(self._numbers),
            is_private="priv" in attributes,
            composite=declared[1] if declared else "",
        )

    def _number(self, value: ir.Value) -> int:
        return self._numbers.setdefault(value, len(self._numbers))

    def _block(self, block: Any) -> Block:
        arguments = list(block.arguments)
        return Block(
            tuple(self._number(a) for a in arguments),
            tuple(self._type(a) for a in arguments),
            tuple(self._op(op.operation) for op in block.operations),
        )

    def _op(self, op: Any) -> Op:
        operands, results = list(op.operands), list(op.results)
        types_ = tuple(self._type(r) for r in results)
        constant = op.name == "coreai.constant"
        return Op(
            op.name,
            tuple(self._number(o) for o in operands),
            tuple(self._number(r) for r in results),
            types_,
            tuple(self._type(o) for o in operands),
            self._value(op, types_[0]) if constant else _attributes(op),
            tuple(self._block(b) for region in op.regions for b in region),
            self._place(op.location),
            _blob(op) if constant else "",
        )

    def _type(self, value: ir.Value) -> Type:
        text = str(value.type)
        if text not in self._types:
            self._types[text] = _parsed(text)
        return self._types[text]

    def _value(self, op: Any, type_: Type) -> Mapping[str, Any]:
        if self._largest is not None and bytes_of(type_) > self._largest:
            return {}
        return {"value": self._constant(op, type_)}

    def _constant(self, op: Any, type_: Type) -> torch.Tensor:
        if type_.kind != "tensor" or type_.element not in _CARRIED:
            raise errors.ConversionError(f"a constant of {type_} has no torch dtype")
        key = _blob(op), type_
        if not key[0]:
            return self._elements(op, type_, "")
        if key not in self._values:
            self._values[key] = self._elements(op, type_, key[0])
        return self._values[key]

    def _elements(self, op: Any, type_: Type, blob: str) -> torch.Tensor:
        raw = self._blobs.get(blob)
        if raw is None or raw.numel() != bytes_of(type_):
            buffer = np.zeros(bytes_of(type_), np.uint8)
            if buffer.size:
                copy_constant_value_to_array(constant_op=op, destination=buffer)
            raw = torch.from_numpy(buffer)
        return _elements(raw, type_)

    def _place(self, location: Any) -> Place:
        text = str(location)
        if text not in self._places:
            self._places[text] = _place(location, text)
        return self._places[text]


def _blob(op: Any) -> str:
    """Return the name of the blob of a constant; empty if the elements are inline."""
    found = re.match(r"dense_resource<(.*?)> :", _text(op.attributes))
    return found[1].strip('"') if found else ""


def _text(attributes: Any) -> str:
    """Return the value of a constant that is stored as a blob; empty if it is inline."""
    try:
        value = attributes["value"]
    except TypeError:  # the binding rejects complex elements
        return ""
    return "" if isinstance(value, ir.DenseElementsAttr) else str(value)


def _bits(element: str) -> int:
    if element == "i1":  # a byte each, unlike ui1
        return 8
    if element == "complex<f32>":
        return 64
    found = re.match(r"[a-z]+(\d+)", element)
    return int(found[1]) if found else 8


def bytes_of(type_: Type) -> int:
    """Return the bytes of the elements in a file; types narrower than a byte are packed."""
    return -(-math.prod(type_.shape) * _bits(type_.element) // 8)


def _elements(raw: torch.Tensor, type_: Type) -> torch.Tensor:
    """Return the bytes of a constant as a tensor; types narrower than a byte are unpacked."""
    bits = _bits(type_.element)
    if not raw.numel():  # torch cannot view an empty tensor as another dtype
        return torch.empty(type_.shape, dtype=type_.dtype)
    if bits < 8:
        raw = _unpacked(raw, type_, bits)
    elif raw.data_ptr() % type_.dtype.itemsize:  # blobs of a file may be misaligned
        raw = raw.clone()
    return raw.view(type_.dtype).reshape(type_.shape)


def _codes(raw: torch.Tensor, bits: int, count: int) -> torch.Tensor:
    if 8 % bits == 0:
        shifts = torch.arange(0, 8, bits, dtype=torch.uint8)
        return (raw[:, None] >> shifts & 2**bits - 1).reshape(-1)[:count]
    flat = np.unpackbits(raw.numpy(), bitorder="little")[: count * bits].reshape(count, bits)
    return torch.from_numpy(np.packbits(flat, axis=1, bitorder="little").reshape(count))


def _unpacked(raw: torch.Tensor, type_: Type, bits: int) -> torch.Tensor:
    count = math.prod(type_.shape)
    codes = _codes(raw, bits, count)
    if type_.element == "f4E2M1FN":
        return _FLOAT4[codes.long()].to(type_.dtype).view(torch.uint8)
    if type_.element.startswith("si"):
        signed = codes.to(torch.int8)
        return torch.where(signed >= 2 ** (bits - 1), signed - 2**bits, signed).view(torch.uint8)
    return codes


_TENSOR = re.compile(r"(?P<wrap>.*?)tensor<(?P<sizes>(?:(?:\d+|\?)x)*)(?P<element>[^,]*?)(?:,.*)?>")


def _parsed(text: str) -> Type:
    found = _TENSOR.fullmatch(text.removesuffix(">") if text.startswith("!") else text)
    if found is None:
        return Type(text.removeprefix("!coreai.").partition("<")[0])
    sizes = (DYNAMIC if s == "?" else int(s) for s in found["sizes"].split("x")[:-1])
    wrap = found["wrap"].removeprefix("!coreai.").removesuffix("<")
    kind = wrap or ("sparse" if "sparse" in text or "bitmask" in text else "tensor")
    return Type(kind, tuple(sizes), found["element"])


def _names(attributes: Any, key: str, count: int) -> Iterator[str]:
    """Return the names of the ports; a port without a name is named by its position."""
    listed = list(attributes[key]) if key in attributes else []
    for index in range(count):
        named = index < len(listed) and "coreai.name" in listed[index]
        yield listed[index]["coreai.name"].value if named else str(index)


_PLAIN: dict[type, Callable[[Any], Any]] = {
    ir.StringAttr: lambda a: a.value,
    ir.BoolAttr: lambda a: a.value,
    ir.IntegerAttr: lambda a: a.value,
    ir.FloatAttr: lambda a: a.value,
    ir.FlatSymbolRefAttr: lambda a: a.value,
    ir.UnitAttr: lambda a: True,
    ir.ArrayAttr: lambda a: tuple(_plain(x) for x in a),
    ir.DictAttr: lambda a: {n.name: _plain(n.attr) for n in a},
}


_WORD = re.compile(r"#coreai\.\w+<(\w+)>")
_SYMBOL = re.compile(r'#param\.constant<@"?(.*?)"?> : !param\.symbol')


def _plain(attribute: Any) -> Any:
    """Return an attribute as a Python value; an enum of the dialect as its name."""
    if type(attribute) in _PLAIN:
        return _PLAIN[type(attribute)](attribute)
    text = str(attribute)
    word = _WORD.fullmatch(text) or _SYMBOL.fullmatch(text)
    return word[1] if word else text


def _attributes(op: Any) -> Mapping[str, Any]:
    return {named.name: _plain(named.attr) for named in op.attributes}


_TAG = re.compile(r'<"(module|fx_node|target|weight)": "((?:[^"\\]|\\.)*)">')
_FILE = re.compile(r'loc\("((?:[^"\\]|\\.)*)":(\d+):\d+\)')
_ESCAPED = re.compile(rb"\\(\\|[0-9A-F]{2})")


def _unescaped(text: str) -> str:
    """Return the characters that MLIR prints as hex escapes, such as a quote."""
    if "\\" not in text:
        return text
    code = _ESCAPED.sub(
        lambda m: m[0][:1] if m[1] == b"\\" else bytes.fromhex(m[1].decode()), text.encode()
    )
    return code.decode(errors="replace")


def place_of(location: Any) -> Place:
    """Return the origin of an op from its location."""
    return _place(location, str(location))


def _place(location: Any, text: str) -> Place:
    found = reversed(_TAG.findall(text))  # the first of a kind belongs to the op
    tags = {key: _unescaped(value) for key, value in found}
    # It returns nothing for three fused locations (coreai-core 1.0.0b3): those of weights.
    found_files = [(f.filename, f.line) for f in get_file_line_col_locations(location)]
    written = [(_unescaped(name), int(line)) for name, line in _FILE.findall(text)]
    files = [(name, line) for name, line in found_files or written if line > 0]
    number = get_operation_id(location, "coreai")
    return Place(
        tags.get("module", ""),
        *(files[0] if files else ("", 0)),
        tags.get("fx_node", ""),
        tags.get("target", ""),
        int(number.value) if number is not None else None,
        tuple(files[1:]),
        tags.get("weight", ""),
    )
