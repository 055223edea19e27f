"""Helpers that recognize composites in models without them, and compare with eager torch."""

from __future__ import annotations

import copy

import torch
from numeric_limits import BFLOAT16_STEP
from runtime import descriptor, run
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.numerics.tolerance import Tolerance, limits
from coreai_torch.passes.recognize import recognized

aten = torch.ops.aten
_HALF_SUMS = Tolerance(2e-3, "the Linux runtime adds up float16 products in float16")
TOLERANCE = limits({**BFLOAT16_STEP, torch.float16: _HALF_SUMS})


class Plain(nn.Module):
    """A function with parameters."""

    def __init__(self, function, **parameters):
        super().__init__()
        self.function = function
        for name, value in parameters.items():
            setattr(self, name, nn.Parameter(value, requires_grad=False))

    def forward(self, *args):
        return self.function(self, *args)


class Several(nn.Module):
    """Several models with the same arguments in one program, to export only once."""

    def __init__(self, models):
        super().__init__()
        self.models = nn.ModuleDict(models)

    def forward(self, *args):
        results = [model(*args) for model in self.models.values()]
        return tuple(
            r for result in results for r in (result if type(result) is tuple else [result])
        )


class _ReshapingInterpreter(torch.fx.Interpreter):
    """Interpreter that reshapes instead of views: a composite may have other strides."""

    def call_function(self, target, args, kwargs):
        if target in (aten.view.default, aten._unsafe_view.default):
            target = aten.reshape.default
        return super().call_function(target, args, kwargs)


def exported(model, *args, dynamic_shapes=None):
    program = torch.export.export(model.eval(), args, dynamic_shapes=dynamic_shapes)
    return program.run_decompositions(get_decomp_table())


def check_recognition(model, *args, wide=False):
    """Recognize composites, check that the numbers stay equal, and return the report.

    With `wide` the numbers are compared with the model in float32, rounded once.
    """
    program = exported(model, *args)
    rewritten, report = recognized(program)
    got = in_torch(rewritten, *args)
    if wide:
        model, args = copy.deepcopy(model).float(), [a.float() for a in args]
    eager = model(*args)
    wanted = eager if isinstance(eager, tuple) else (eager,)
    for mine, value in zip(got, wanted, strict=True):
        close(mine, value.to(mine.dtype) if wide else value)
    return report


def in_torch(program, *args):
    placeholders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    tensors = {**dict(program.state_dict), **program.constants}
    by_name = {
        spec.arg.name: tensors[spec.target]
        for spec in program.graph_signature.input_specs
        if spec.target is not None
    }
    given = iter(args)
    fed = [by_name[name] if name in by_name else next(given) for name in placeholders]
    with torch.no_grad():
        return _ReshapingInterpreter(program.graph_module).run(*fed)


def close(got, wanted):
    tolerance = TOLERANCE.get(wanted.dtype, 0.0)
    torch.testing.assert_close(got, wanted.detach(), rtol=tolerance, atol=tolerance)


def converted(model, *args, dynamic_shapes=None, **options):
    converter = TorchConverter(recognize=True, **options)
    converter.add_exported_program(exported(model, *args, dynamic_shapes=dynamic_shapes))
    return converter.to_coreai(), converter.recognition_report


def assert_runs_as(program, model, *calls):
    """Assert that the program equals eager, before and after `optimize`."""
    for optimized in (False, True):
        if optimized:
            program.optimize()
        names = descriptor(program)
        for args in calls:
            got = run(program, dict(zip(names.input_names, args, strict=True)))
            with torch.no_grad():
                eager = model(*args)
            wanted = eager if isinstance(eager, tuple) else (eager,)
            for name, value in zip(names.output_names, wanted, strict=True):
                close(got[name], value)


def why(report, composite):
    """Return the only reason why a composite was not recognized."""
    (missed,) = (row for row in report.missed if row.composite == composite)
    return missed.why
