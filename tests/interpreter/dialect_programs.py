"""Build programs directly in the dialect, with ops and types that the converter never emits."""

from __future__ import annotations

import coreai.authoring  # noqa: F401  # must precede the dialects, which have an import cycle
import numpy as np
import torch
from coreai._compiler import ir
from coreai._compiler.dialects import _coreai_ops_gen as gen
from coreai._compiler.dialects import coreai as ops
from coreai._compiler.ir import (
    Attribute,
    DenseResourceElementsAttr,
    InsertionPoint,
    Location,
    RankedTensorType,
    Type,
)
from coreai.authoring import Context

from coreai_torch.asset.program import Program
from coreai_torch.asset.reading import _CARRIED as CARRIED

__all__ = ["CARRIED", "Attribute", "built", "constant", "gen", "ops", "packed", "tensor_type"]

ELEMENT = {dtype: name for name, dtype in reversed(CARRIED.items())}


def tensor_type(shape, element):
    return RankedTensorType.get(list(shape), Type.parse(element))


def built(feeds, body, dynamic=False):
    """Build a program: `body` takes a value for each feed and returns outputs by name."""
    size = ir.ShapedType.get_dynamic_size()
    with Context(), Location.unknown():
        module = ir.Module.create()
        with InsertionPoint(module.body):
            types = [
                tensor_type([size] * t.dim() if dynamic else t.shape, ELEMENT[t.dtype])
                for t in feeds.values()
            ]
            graph = ops.GraphOp("main", types, [], list(feeds), [])
            with graph.block:
                outputs = body(*graph.arguments)
            graph.outputs_spec = list(outputs.items())
        module.operation.verify()
        return Program._from_mlir_module(module)


def constant(values, element, shape=None):
    """Return a constant of any element type, also of those that torch and numpy lack."""
    if isinstance(values, torch.Tensor):
        raw = values.contiguous().reshape(-1).view(torch.uint8).numpy()
        return _resource(raw, tensor_type(values.shape, element))
    type_ = tensor_type(np.shape(values) if shape is None else shape, element)
    text = f"dense<{str(values).lower()}> : {type_}"
    return gen.ConstantOp(value=Attribute.parse(text)).result


def _resource(raw, type_):
    attribute = DenseResourceElementsAttr.get_from_buffer(
        np.ascontiguousarray(raw), "values", type_
    )
    return gen.ConstantOp(value=attribute).result


def packed(codes, bits, element):
    """Return a constant of codes narrower than a byte, packed with the low bits first."""
    flat = np.asarray(codes, np.uint8).reshape(-1, 1)
    spread = np.unpackbits(flat, axis=1, count=bits, bitorder="little").reshape(-1)
    return _resource(np.packbits(spread, bitorder="little"), tensor_type(np.shape(codes), element))
