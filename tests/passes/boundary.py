"""Convert models with externalized modules, and compare the numbers with eager torch."""

from __future__ import annotations

import copy

import torch
from compat.programs import composites, graphs
from runtime import descriptor, run_with_state
from torch import nn
from torch.utils import _pytree as pytree

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.ir.types import narrow

__all__ = [
    "Model",
    "Norm",
    "assert_agrees",
    "composite_spec",
    "composites",
    "converted",
    "graphs",
    "staged",
]

NORM_ATTRS = ["eps"]


class Norm(nn.Module):
    """A norm with a parameter, a buffer and an optional argument."""

    def __init__(self, eps: float = 1e-5, dim: int = 6) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.linspace(0.5, 1.5, dim))
        self.register_buffer("shift", torch.linspace(-1, 1, dim))

    def forward(self, x, extra=None):
        scaled = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.eps)
        scaled = scaled * self.weight + self.shift
        return scaled if extra is None else scaled + extra


NORM = ExternalizeSpec(Norm, "norm", NORM_ATTRS)


class Model(nn.Module):
    """A model whose forward is a function of the model and its arguments."""

    def __init__(self, function, **modules) -> None:
        super().__init__()
        self.function = function
        for name, module in modules.items():
            setattr(self, name, module)

    def forward(self, *args):
        return self.function(self, *args)


def composite_spec(cls, name="op", *attrs):
    return ExternalizeSpec(cls, name, list(attrs))


def staged(converter, model, *args, modules, strict=False, names=None, **export):
    def export_fn(module):
        program = torch.export.export(module, args, strict=strict, **export)
        return program.run_decompositions(get_decomp_table())

    return converter.add_pytorch_module(
        model.eval(), export_fn, externalize_modules=modules, **(names or {})
    )


def converted(model, *args, modules, **options):
    return staged(TorchConverter(), model, *args, modules=modules, **options).to_coreai()


def _narrowed_tensors(values):
    tensors = [v.detach() for v in pytree.tree_leaves(values) if isinstance(v, torch.Tensor)]
    return [t.to(narrow(t.dtype)) for t in tensors]


def assert_agrees(program, model, *calls, entrypoint="main", tolerance=1e-5):
    """Assert that each call (a tuple of arguments) equals eager, before and after `optimize`.

    The states of a call are the model's buffers.
    """
    for optimized in (False, True):
        if optimized:
            program.optimize()
        names = descriptor(program, entrypoint)
        for args in calls:
            eager = copy.deepcopy(model)
            buffers = dict(eager.named_buffers())
            states = {n: _buffer(buffers, n).clone() for n in names.state_names}
            fed = dict(zip(names.input_names, pytree.tree_leaves(args), strict=True))
            got, after = run_with_state(program, fed, states, entrypoint)
            with torch.no_grad():
                wanted = _narrowed_tensors(eager(*copy.deepcopy(args)))
            for name, value in zip(names.output_names, wanted, strict=True):
                torch.testing.assert_close(got[name], value, rtol=tolerance, atol=tolerance)
            buffers = dict(eager.named_buffers())
            for name in names.state_names:
                value = _buffer(buffers, name)
                torch.testing.assert_close(after[name], value, rtol=tolerance, atol=tolerance)


def _buffer(buffers, state):
    (found,) = (b for path, b in buffers.items() if f"b_{path.replace('.', '_')}" == state)
    return found
