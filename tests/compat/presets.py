"""Definitions of the names that the seed documents use without defining them."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

import coreai_torch


class SomeOp(nn.Module):
    """A user's composite op with the attributes that the skeleton records."""

    def __init__(self, attr1: float, attr2: int) -> None:
        super().__init__()
        self.attr1 = attr1
        self.attr2 = attr2

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x * self.attr1) + self.attr2


class ImageClassifier(nn.Module):
    """A model for `input_names=["image"], output_names=["logits"]`."""

    def __init__(self) -> None:
        super().__init__()
        self.patches = nn.Conv2d(3, 8, kernel_size=16, stride=16)
        self.head = nn.Linear(8, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.patches(x)).mean((2, 3)))


def _exported(module: nn.Module, *args: Tensor) -> torch.export.ExportedProgram:
    exported = torch.export.export(module.eval(), args)
    return exported.run_decompositions(coreai_torch.get_decomp_table())


def _composite_ops_guide() -> dict[str, Any]:
    return {
        "SomeOp": SomeOp,
        # The user's model with the op as a submodule; the worked example defines another one.
        "model": nn.Sequential(nn.Linear(4, 4), SomeOp(0.5, 2)).eval(),
        # Arguments of that model.
        "sample": (torch.randn(2, 4),),
    }


def _torch_converter_reference() -> dict[str, Any]:
    return {
        # The user's model: one image in, one tensor of logits out.
        "MyModel": ImageClassifier,
        # Its arguments, with the shape that the document uses for `sample`.
        "example_inputs": (torch.randn(1, 3, 224, 224),),
        # Decomposed programs staged under the names encoder and decoder.
        "ep_a": _exported(nn.Linear(4, 2), torch.randn(1, 4)),
        "ep_b": _exported(nn.Linear(2, 4), torch.randn(1, 2)),
        # Modules that the reference page does not import.
        "coreai_torch": coreai_torch,
        "nn": nn,
    }


def _nothing() -> dict[str, Any]:
    return {}


PRESETS: dict[str, Callable[[], dict[str, Any]]] = {
    "composite_ops_guide": _composite_ops_guide,
    "conversion_workflows": _nothing,
    "custom_op_lowering": _nothing,
    "externalization": _nothing,
    "torch_converter_reference": _torch_converter_reference,
}
