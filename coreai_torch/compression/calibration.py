"""Run a model on calibration data and record the inputs of its layers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn import functional

from ..errors import ConversionError
from ..progress import progress
from .weights import is_transposed_linear

Sample: TypeAlias = "tuple[tuple[Any, ...], dict[str, Any]]"  # args and kwargs of one call

KEPT_ROWS = 2048  # rows of a layer's input that are kept for the search of scales


def samples(calibration: Any) -> list[Sample]:
    """Return the calls that calibration data describes.

    Each sample is a tensor, a tuple of args, a dictionary of kwargs, or a tuple of both; a single
    tensor or dictionary is one sample.
    """
    if isinstance(calibration, Tensor | Mapping):
        calibration = [calibration]
    if not isinstance(calibration, Iterable):
        raise ConversionError(
            f"calibration is {calibration!r}\n  try   pass a list of inputs, such as [(x1,), (x2,)]"
        )
    found = [_sample(one) for one in calibration]
    if not found:
        raise ConversionError("calibration is empty\n  try   pass at least one input")
    return found


def _sample(one: Any) -> Sample:
    if isinstance(one, Mapping):
        return (), dict(one)
    if isinstance(one, tuple) and len(one) == 2 and _is_call(*one):
        return one
    return (tuple(one), {}) if isinstance(one, Sequence) else ((one,), {})


def _is_call(args: Any, kwargs: Any) -> bool:
    return isinstance(args, tuple) and isinstance(kwargs, dict)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switch the model to evaluation, without gradients, for a while."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        for module in training:
            module.training = True


def outputs(model: nn.Module, data: Sequence[Sample]) -> list[Tensor]:
    """Return the float outputs of the model for each sample, flattened."""
    from ..torch_compat import pytree

    found = []
    with evaluating(model):
        for args, kwargs in data:
            leaves = pytree.tree_leaves(model(*args, **kwargs))
            found += [x.flatten().float() for x in leaves if _is_float(x)]
    if not found:
        raise ConversionError(
            "the model returns no floating-point tensor, so its error cannot be measured\n"
            "  try   pass metric=, a function of the model that returns a number"
        )
    return found


def _is_float(x: Any) -> bool:
    return isinstance(x, Tensor) and x.is_floating_point()


@dataclass
class InputStatistics:
    """What the calibration recorded about the input of a layer."""

    low: float = 0.0  # zero is always in the range, so that padding is exact
    high: float = 0.0
    count: int = 0  # calls
    hessian: Tensor | None = None  # sum of x^T x over all rows, for layers that are products
    rows: list[Tensor] = field(default_factory=list)

    def add(self, module: nn.Module, x: Tensor, *, products: bool) -> None:
        """Record one input."""
        self.count += 1
        if x.numel() == 0:
            return
        least, most = (float(v) for v in torch.aminmax(x.detach().float()))
        self.low, self.high = min(self.low, least), max(self.high, most)
        rows = as_rows(module, x.detach()) if products else None
        if rows is None:
            return
        rows = rows.float().cpu()
        gram = rows.T @ rows
        self.hessian = gram if self.hessian is None else self.hessian.add_(gram)
        room = KEPT_ROWS - sum(len(part) for part in self.rows)
        if room > 0:
            stride = max(1, len(rows) // room)
            self.rows.append(rows[::stride][:room])


def as_rows(module: nn.Module, x: Tensor) -> Tensor | None:
    """Return the input as rows that are multiplied by the flattened weight, or None."""
    if isinstance(module, nn.Linear) or is_transposed_linear(module):
        return x.reshape(-1, x.shape[-1])
    if not isinstance(module, nn.Conv1d | nn.Conv2d):
        return None
    if module.groups > 1 or module.padding_mode != "zeros" or isinstance(module.padding, str):
        return None
    sizes = [module.kernel_size, module.dilation, module.padding, module.stride]
    batched = x if x.dim() == len(module.kernel_size) + 2 else x[None]
    if isinstance(module, nn.Conv1d):
        batched = batched.unsqueeze(2)
        sizes = [(neutral, *size) for neutral, size in zip((1, 1, 0, 1), sizes, strict=True)]
    columns = functional.unfold(batched, *sizes)
    return columns.transpose(1, 2).flatten(0, 1)


def observe(
    model: nn.Module, layers: Iterable[nn.Module], data: Sequence[Sample], *, products: bool
) -> dict[nn.Module, InputStatistics]:
    """Run the model on all samples; return the statistics of the layers that were called."""
    found = {layer: InputStatistics() for layer in layers}

    def record(module: nn.Module, args: Any, kwargs: Any) -> None:
        given = args[0] if args else kwargs.get("input", kwargs.get("x"))
        if _is_float(given):
            found[module].add(module, given, products=products)

    hooks = [layer.register_forward_pre_hook(record, with_kwargs=True) for layer in found]
    try:
        with evaluating(model), progress("calibrating", len(data)) as advance:
            for args, kwargs in data:
                model(*args, **kwargs)
                advance()
    finally:
        for hook in hooks:
            hook.remove()
    return {layer: one for layer, one in found.items() if one.count}
