"""Export a module and compare the program with the module."""

import torch
from numeric_limits import BFLOAT16_STEP
from torch.export import Dim, ExportedProgram

from coreai_torch.numerics.tolerance import limits

RTOL = limits(BFLOAT16_STEP)
NARROW = [torch.float16, torch.bfloat16]
FLOATS = [torch.float32, *NARROW]


def dims(*names: str) -> tuple[Dim, ...]:
    return tuple(Dim(name, min=1, max=4096) for name in names)


def close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    """Assert equal dtype and shape, and numbers within the tolerances above."""
    rtol = RTOL[actual.dtype]
    torch.testing.assert_close(actual, expected, rtol=rtol, atol=rtol)


def exports(
    module: torch.nn.Module,
    sample: tuple[torch.Tensor | None, ...],
    *others: tuple[torch.Tensor | None, ...],
    dynamic_shapes: tuple[dict[int, Dim] | None, ...] | None = None,
    strict: bool = False,
) -> ExportedProgram:
    """Export with `sample` and decompose; check the program on `sample` and on `others`."""
    program = torch.export.export(module, sample, dynamic_shapes=dynamic_shapes, strict=strict)
    program = program.run_decompositions()
    run = program.module()
    for inputs in (sample, *others):
        expected, actual = module(*inputs), run(*inputs)
        if isinstance(expected, torch.Tensor):
            expected, actual = (expected,), (actual,)
        for e, a in zip(expected, actual, strict=True):
            close(a, e)
    return program


def targets(program: ExportedProgram) -> list[str]:
    return [str(node.target) for node in program.graph.nodes if node.op == "call_function"]
