"""What a program consists of: ops, casts, float32 ops and findings."""

from __future__ import annotations

from typing import Any

from coreai_torch.asset.reading import Program, Source, read
from coreai_torch.targets.lint import lint_program, rules_for
from coreai_torch.targets.lint.findings import _READ
from coreai_torch.targets.lint.view import kind
from tests.forms.histograms import counted, histogram

TARGETS = ("neural_engine", "gpu")


def figures(source: Source) -> dict[str, Any]:
    """Return the histogram of the entry points, where a composite is one op, and the findings.

    Ops inside composites are counted apart: a device may have a kernel instead of them.
    """
    program = read(source, largest=_READ)
    found = histogram(program)
    return {
        "ops": found.ops,
        "inner": found.inner,
        "float32": _float32(program),
        "findings": {target: _findings(program, target) for target in TARGETS},
    }


def _float32(program: Program) -> int:
    """Return the number of ops outside composites that return float32, but casts."""
    functions = (f for f in program.functions.values() if not f.composite)
    ops = (op for function in functions for op in counted(function) if kind(op) != "cast")
    return sum(any(t.element == "f32" for t in op.types) for op in ops)


def _findings(program: Program, target: str) -> dict[str, int]:
    found = lint_program(program, rules_for(target))
    return {finding.code: finding.count for finding in sorted(found, key=lambda f: f.code)}
