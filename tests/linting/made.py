"""Programs made by hand, for constructs that this converter does not emit."""

from __future__ import annotations

from coreai_torch.asset.reading import Block, Function, Op, Place, Port, Program, Type


def tensor(element: str, *shape: int) -> Type:
    return Type("tensor", shape, element)


def op(name, operands, results, types, operand_types=(), **attributes):
    return Op(
        f"coreai.{name}",
        tuple(operands),
        tuple(results),
        tuple(types),
        tuple(operand_types),
        attributes,
        (),
        Place(),
    )


def constant(number: int, type_: Type, **attributes) -> Op:
    return op("constant", (), (number,), (type_,), **attributes)


def function(ops=(), inputs=(), outputs=(), name="main", composite=""):
    arguments = tuple(range(len(inputs)))
    block = Block(arguments, tuple(p.type for p in inputs), tuple(ops))
    return Function(
        name, tuple(inputs), tuple(outputs), block, 100, bool(composite), composite=composite
    )


def program(*functions: Function) -> Program:
    return Program({f.name: f for f in functions})


def ops(*listed: Op, inputs=()) -> Program:
    return program(function(listed, inputs))


def ports(*types: Type, names=None, outputs=()) -> Program:
    named = names or [f"x{i}" for i in range(len(types))]
    inputs = [Port(n, t) for n, t in zip(named, types, strict=True)]
    return program(function(inputs=inputs, outputs=outputs))
