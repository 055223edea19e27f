"""Whole models, exported, converted, optimized, run and compared with eager torch."""

from __future__ import annotations

import pytest
import runtime
import torch
import zoo

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.capture.sequence_lengths import open_lengths


def compare(name, model, program, inputs):
    names = runtime.descriptor(program).input_names
    (got,) = runtime.run(program, dict(zip(names, inputs, strict=True))).values()
    with torch.no_grad():
        want = model(*inputs)
    # Errors add up over the layers of a model: 1e-4 of the largest output.
    assert (got - want).abs().max() <= 1e-4 * want.abs().max(), name


def convert(model, inputs, dynamic_shapes=None):
    with open_lengths():  # export alone would fix the length of a recurrent layer's sequence
        exported = torch.export.export(model, inputs, dynamic_shapes=dynamic_shapes)
        exported = exported.run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.mark.parametrize("name", zoo.MODELS)
def test_static(name):
    torch.manual_seed(0)
    model, inputs = zoo.MODELS[name]()
    model.eval()
    program = convert(model, inputs)
    compare(name, model, program, inputs)
    program.optimize()
    compare(name, model, program, inputs)


@pytest.mark.parametrize("name", zoo.DYNAMIC)
def test_dynamic(name):
    torch.manual_seed(0)
    model, inputs = zoo.MODELS[name]()
    model.eval()
    shapes, other = zoo.DYNAMIC[name]
    named = (shapes,) if name in ("bert", "vit", "resnet", "llama") else shapes
    program = convert(model, inputs, named)
    program.optimize()
    compare(name, model, program, inputs)
    compare(name, model, program, other())
