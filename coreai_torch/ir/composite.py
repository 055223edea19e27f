"""Composites: named groups of ops that the compiler may replace by one implementation."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from coreai._compiler.ir import (
    ArrayAttr,
    Attribute,
    BoolAttr,
    Context,
    DictAttr,
    F32Type,
    FloatAttr,
    IntegerAttr,
    IntegerType,
    Location,
    StringAttr,
    UnitAttr,
    Value,
)

from ..errors import ConversionError
from . import graph
from .build import Build

Results: TypeAlias = "Value | Sequence[Value]"


def attribute(value: Any) -> Attribute:
    """Return a Python value as an attribute that can be serialized."""
    match value:
        case Attribute():
            return value
        case None:
            return UnitAttr.get()
        case bool():  # before int, because bool is a subclass
            return BoolAttr.get(value)
        case int():
            return IntegerAttr.get(IntegerType.get_signed(64), value)
        case float():
            return FloatAttr.get(F32Type.get(), value)
        case str():
            return StringAttr.get(value)
        case Mapping():
            return DictAttr.get({k: attribute(v) for k, v in value.items()})
        case list() | tuple():
            return ArrayAttr.get([attribute(v) for v in value])
    raise TypeError(
        f"a composite attribute holds None, bool, int, float, str, lists and dictionaries "
        f"of them, not {value!r} ({type(value).__name__})"
    )


def declaration(
    name: str, inputs: Sequence[str], outputs: Sequence[str], attrs: Mapping[str, Any]
) -> Attribute:
    """Return the `composite_decl` attribute of a graph, in the active context."""
    contract = attribute(
        {"input_names": list(inputs), "op_attrs": dict(attrs), "output_names": list(outputs)}
    )
    return Attribute.parse(f"#coreai.composite_declaration<{StringAttr.get(name)} = {contract}>")


def generate_composite_decl(
    context: Context,
    op_name: str | None = None,
    input_names: Sequence[str] = (),
    output_names: Sequence[str] = (),
    op_attributes: Mapping[str, Any] | None = None,
    version: int = 1,
    *,
    composite_name: str | None = None,
) -> Attribute:
    """Return the `composite_decl` attribute for a `coreai.graph` that a custom lowering builds.

    Args:
        context: the context of the location that a lowering gets, `loc.context`.
        op_name: the name that the compiler looks for.
        input_names: the names of the operands, in order.
        output_names: the names of the results.
        op_attributes: None, bools, integers, floats, strings, lists and dictionaries of them.
        version: the version of the composite, unless `op_attributes` has one.
        composite_name: another name for the argument `op_name`.
    """
    name = op_name if composite_name is None else composite_name
    if name is None or (op_name is not None and composite_name is not None):
        raise ConversionError(
            f"op_name is {op_name!r} and composite_name {composite_name!r}\n"
            "  try   pass the name of the composite as one of them"
        )
    with context, Location.unknown():
        attributes = {"version": version, **(op_attributes or {})}
        return declaration(name, input_names, output_names, attributes)


@dataclass(frozen=True)
class Composite:
    """The declaration of a composite, by which the compiler recognizes it."""

    name: str
    inputs: tuple[str, ...]
    attrs: Mapping[str, Any] = field(default_factory=dict)
    outputs: tuple[str, ...] = ("output",)
    version: int = 1

    def emit(
        self, body: Callable[..., Results], *operands: Value, variant: str = ""
    ) -> list[Value]:
        """Invoke the graph of the composite; it is built once per declaration and operand types.

        `body` is the fallback: a function of the operands and of the attributes alone, and of
        what `variant` spells.
        """
        build = Build.current()
        declared = declaration(
            self.name, self.inputs, self.outputs, {**self.attrs, "version": self.version}
        )
        types_ = tuple(str(o.type) for o in operands)
        key = (str(declared), variant, types_, build.zero_sizes)
        if key not in build.shared_graphs:
            build.shared_graphs[key] = self._graph(declared, body, operands)
        return list(build.shared_graphs[key](*operands))

    def _graph(
        self,
        declared: Attribute,
        body: Callable[..., Results],
        operands: Sequence[Value],
    ) -> Any:
        return graph.helper(
            self.name,
            [graph.Port(n, o.type) for n, o in zip(self.inputs, operands, strict=True)],
            lambda arguments: _listed(body(*arguments)),
            self.outputs,
            no_inline=True,
            composite_decl=declared,
        )


def _listed(results: Results) -> list[Value]:
    return [results] if isinstance(results, Value) else list(results)
