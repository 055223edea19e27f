"""Export and convert a module in one call."""

from __future__ import annotations

import torch

from coreai_torch import TorchConverter, get_decomp_table


def exported(model, *args, **kwargs):
    program = torch.export.export(model.eval(), args, **kwargs)
    return program.run_decompositions(get_decomp_table())


def converted(model, *args, mode=None, dynamic_shapes=None, kwargs=None, **names):
    program = exported(model, *args, dynamic_shapes=dynamic_shapes, kwargs=kwargs)
    return TorchConverter(mode).add_exported_program(program, **names).to_coreai()
