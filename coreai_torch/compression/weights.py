"""Find the weights of a model that can be compressed."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from .compression_report import CompressedWeight

# For each layer type: the weight's name, its output axis, and the axis that is cut into blocks.
_AXES: dict[type[nn.Module], tuple[str, int, int]] = {
    nn.Linear: ("weight", 0, 1),
    nn.Embedding: ("weight", 0, 1),
    nn.EmbeddingBag: ("weight", 0, 1),
    nn.Conv1d: ("weight", 0, 1),
    nn.Conv2d: ("weight", 0, 1),
    nn.Conv3d: ("weight", 0, 1),
    nn.ConvTranspose1d: ("weight", 1, 0),
    nn.ConvTranspose2d: ("weight", 1, 0),
    nn.ConvTranspose3d: ("weight", 1, 0),
    nn.MultiheadAttention: ("in_proj_weight", 0, 1),
}


@dataclass
class Weight:
    """A weight and all modules that share it."""

    name: str
    value: Tensor
    axes: tuple[int, int] | None
    module: nn.Module
    attribute: str
    ties: list[Weight] = field(default_factory=list)

    @property
    def users(self) -> list[Weight]:
        """Return the weight itself and its ties."""
        return [self, *self.ties]

    @property
    def path(self) -> str:
        """Return the path of the layer."""
        return self.name.rpartition(".")[0]

    @property
    def is_stacked(self) -> bool:
        """Return whether the first axis counts experts, each with its own weight."""
        return is_experts(self.module)


def find_weights(model: nn.Module) -> list[Weight]:
    """Return each parameter of rank 2 or more once; its other users become its ties."""
    found: dict[int, Weight] = {}
    for path, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            continue
        for attribute, value in module.named_parameters(recurse=False):
            if value.dim() < 2:
                continue
            name = f"{path}.{attribute}" if path else attribute
            weight = Weight(name, value, _axes(module, attribute), module, attribute)
            if id(value) in found:
                found[id(value)].ties.append(weight)
            else:
                found[id(value)] = weight
    return list(found.values())


def is_transposed_linear(module: nn.Module) -> bool:
    """Return whether the layer is the linear layer of transformers with a weight [in, out]."""
    return type(module).__name__ == "Conv1D"


# Experts without the attribute `is_transposed`; their weights are [experts, in, out].
_TRANSPOSED_EXPERTS = ("Llama4TextExperts",)


def is_experts(module: nn.Module) -> bool:
    """Return whether the layer contains experts of transformers: weights [experts, out, in].

    Their order is [experts, in, out] if `is_transposed`, and in some classes always.
    """
    kinds = {kind.__name__ for kind in type(module).__mro__}
    if not kinds.isdisjoint(_TRANSPOSED_EXPERTS):
        return True
    return isinstance(getattr(module, "is_transposed", None), bool) and hasattr(module, "has_gate")


def _axes(module: nn.Module, attribute: str) -> tuple[int, int] | None:
    if is_experts(module):
        if getattr(module, attribute).dim() != 3:
            return None  # a bias of each expert
        return (2, 1) if getattr(module, "is_transposed", True) else (1, 2)
    for kind, (name, channel, across) in _AXES.items():
        if isinstance(module, kind) and attribute == name:
            return channel, across
    return (1, 0) if is_transposed_linear(module) and attribute == "weight" else None


def parametrized_rows(model: nn.Module) -> Iterator[CompressedWeight]:
    """Yield a row for each weight that is already parametrized (compressed, normalised, pruned)."""
    for path, module in model.named_modules():
        if not parametrize.is_parametrized(module) or _is_part(path):
            continue
        for attribute, layers in module.parametrizations.items():
            name = f"{path}.{attribute}" if path else attribute
            with torch.no_grad():
                shape = tuple(getattr(module, attribute).shape)
            size = sum(t.numel() * t.element_size() for t in layers.state_dict().values())
            kinds = ", ".join(type(layer).__name__ for layer in layers)
            bits = 8 * size / max(math.prod(shape), 1)
            why = f"already parametrized ({kinds})"
            yield CompressedWeight(name, shape, None, bits, 0.0, size, size, why)


def _is_part(path: str) -> bool:
    """Return whether the module computes a part of a compressed weight."""
    return "parametrizations" in path.split(".")


def in_model_order(model: nn.Module, rows: Iterable[CompressedWeight]) -> list[CompressedWeight]:
    """Sort the rows by module, since tied weights were added out of order."""
    positions = {path: at for at, (path, _) in enumerate(model.named_modules())}
    return sorted(rows, key=lambda row: positions[row.name.rpartition(".")[0]])
