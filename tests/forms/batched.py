"""The form of each case in a program that has several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from coreai_torch.asset.reading import Block, Op, Program, read
from coreai_torch.asset.summary import ops_of
from coreai_torch.targets.lint import RULES, lint_program
from coreai_torch.targets.lint.findings import _READ

from .histograms import histogram

# Rules about the dtypes of inputs, which the case chooses: booleans, bfloat16 and float16.
_OF_INPUTS = ("HAZ04", "HAZ40", "HAZ56")
_RULES = [rule for rule in RULES if rule.code not in _OF_INPUTS]


def forms(source: Any, outputs: Sequence[int]) -> list[str]:
    """Return the form of each case of an optimized program, in order.

    `outputs` has the number of outputs of each case; its ops are those that they depend on.
    """
    program = read(source, largest=_READ)
    start, found = 0, []
    for count in outputs:
        found.append(form(_part(program, start, start + count)))
        start += count
    return found


def form(program: Program) -> str:
    """Return what a program consists of in one line: `cast, mul 2, [gelu] of 9 | HAZ52 2`."""
    found = histogram(program)
    inside = f" of {sum(found.inner.values())}" if found.inner else ""
    ops = _listed(found.ops)
    broken = sorted(lint_program(program, _RULES), key=lambda finding: finding.code)
    findings = {finding.code: finding.count for finding in broken}
    return f"{ops or 'no op'}{inside}" + (f" | {_listed(findings)}" if findings else "")


def findings(form: str) -> list[str]:
    """Return the codes of the rules that a form breaks."""
    return [one.split()[0] for one in form.partition(" | ")[2].split(", ") if one]


def _listed(counts: Any) -> str:
    return ", ".join(name if n == 1 else f"{name} {n}" for name, n in counts.items())


def _part(program: Program, start: int, end: int) -> Program:
    """Return the program with only the outputs in a range, and what they depend on."""
    name, main = next((n, f) for n, f in program.functions.items() if not f.is_private)
    last = main.body.ops[-1]
    wanted = set(last.operands[start:end])
    kept: list[Op] = []
    for op in reversed(main.body.ops[:-1]):
        if wanted.intersection(op.results):
            kept.append(op)
            wanted.update(_used(op))
    types = last.operand_types[start:end]
    kept = [*reversed(kept), replace(last, operands=last.operands[start:end], operand_types=types)]
    arguments = [i for i, value in enumerate(main.body.arguments) if value in wanted]
    body = Block(
        tuple(main.body.arguments[i] for i in arguments),
        tuple(main.body.types[i] for i in arguments),
        tuple(kept),
    )
    inputs = tuple(main.inputs[i] for i in arguments)
    part = replace(main, inputs=inputs, outputs=main.outputs[start:end], body=body)
    called = {f: program.functions[f] for f in _called(program, body)}
    return Program({name: part, **called})


def _used(op: Op) -> Iterator[int]:
    yield from op.operands
    for region in op.regions:
        for inner in ops_of(region):
            yield from inner.operands


def _called(program: Program, body: Block) -> dict[str, None]:
    """Return the names of the functions that ops of a block call, directly or not."""
    names: dict[str, None] = {}
    for op in ops_of(body):
        if op.name == "coreai.invoke" and op.attributes["callee"] not in names:
            callee = op.attributes["callee"]
            names[callee] = None
            names |= _called(program, program.functions[callee].body)
    return names
