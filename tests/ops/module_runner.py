"""Convert a module, run it at several sizes and compare it with torch."""

from __future__ import annotations

import runtime
import torch
from case_runner import compare
from torch.utils import _pytree as pytree

import coreai_torch


class Call(torch.nn.Module):
    """Wrap a function as a module."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, *args):
        return self.function(*args)


def convert(module, args, dynamic_shapes=None, lowerings=None, **options):
    """Convert a module or a function; `lowerings` are registered by name."""
    module = module if isinstance(module, torch.nn.Module) else Call(module)
    if dynamic_shapes is not None and isinstance(module, Call):
        dynamic_shapes = (dynamic_shapes,)
    exported = torch.export.export(module.eval(), args, dynamic_shapes=dynamic_shapes)
    converter = coreai_torch.TorchConverter(**options)
    exported = exported.run_decompositions(converter.decomposition_table())
    for name, lowering in (lowerings or {}).items():
        converter.register_torch_lowering(name)(lowering)
    return converter.add_exported_program(exported).to_coreai()


def run(program, args):
    """Return the outputs of one call with positional arguments, in order."""
    names = runtime.descriptor(program).input_names
    feeds = dict(zip(names, pytree.tree_leaves(args), strict=True))
    return list(runtime.run(program, feeds).values())


def check(module, *calls, dynamic_shapes=None, tolerance=None, optimized=(False, True), **options):
    """Convert for the arguments of the first call and compare the results of every call."""
    program = convert(module, calls[0], dynamic_shapes, **options)
    for optimize in optimized:
        if optimize:
            program.optimize()
        for args in calls:
            with torch.no_grad():
                want = pytree.tree_leaves(module(*args))
            got = run(program, args)
            assert len(got) == len(want)
            for g, w in zip(got, want, strict=True):
                compare(g, w, tolerance)
    return program
