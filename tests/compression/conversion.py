"""Helpers that convert compressed models, run them and measure the saved files."""

from __future__ import annotations

import tempfile
from pathlib import Path

import runtime
import torch
from torch import nn
from torch.nn.utils import parametrize

import coreai_torch
from coreai_torch._compression.utils import wrap_for_parametrization
from coreai_torch.numerics.tolerance import limits

TOLERANCE = limits()
MEASURED: dict[str, float] = {}  # by the current test, for the table of `make clients`


def compressed(module: nn.Module, layer: nn.Module, name: str = "weight") -> nn.Module:
    """Replace a weight by a compressed layer, and free the weight."""
    layer.__class__ = wrap_for_parametrization(type(layer))
    parametrize.register_parametrization(module, name, layer, unsafe=True)
    module.parametrizations[name].original = nn.Parameter(torch.empty(0), requires_grad=False)
    return module


def converted(model: nn.Module, *inputs: torch.Tensor, **export):
    program = torch.export.export(model, inputs, **export)
    program = program.run_decompositions(coreai_torch.get_decomp_table())
    return coreai_torch.TorchConverter().add_exported_program(program).to_coreai()


def saved_bytes(program) -> int:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "m.aimodel"
        program.save_asset(path)
        return sum(f.stat().st_size for f in path.rglob("*") if f.is_file())


def assert_packed(program, weights: float, more: float, less: float = 0) -> None:
    """Check that the asset has the packed weights and at most `more` bytes besides."""
    MEASURED.update(weights=weights, asset=saved_bytes(program))
    assert weights - less < MEASURED["asset"] < weights + more


def ran(program, *inputs: torch.Tensor, names=None) -> torch.Tensor:
    names = names or runtime.descriptor(program).input_names
    (output,) = runtime.run(program, dict(zip(names, inputs, strict=True))).values()
    return output


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    tolerance = TOLERANCE[want.dtype]
    errors = (got.double() - want.detach().double()).abs().flatten().tolist()
    MEASURED["error"] = max([MEASURED.get("error", 0), *errors])
    torch.testing.assert_close(got, want.detach(), rtol=tolerance, atol=tolerance)


def checked(model: nn.Module, *inputs: torch.Tensor, **export):
    """Convert, and compare the program with eager before and after `optimize`."""
    program = converted(model, *inputs, **export)
    want, names = model(*inputs), runtime.descriptor(program).input_names
    close(ran(program, *inputs, names=names), want)
    program.optimize()
    close(ran(program, *inputs, names=names), want)
    return program
