"""Use calibration data: round weights by GPTQ or AWQ, and quantize the inputs of layers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ConversionError
from .activations import QuantizeInput, QuantizeInputDynamically, ScaleInput, attach, takes_floats
from .awq import search_scales
from .calibration import InputStatistics, Sample, observe, samples
from .gptq import gptq, output_error, supports, to_rows
from .schemes import Layout, Parts, Scheme, compress_in_slices
from .specs import Spec
from .weights import Weight, is_transposed_linear

METHODS = ("gptq", "awq")
_MEMORY = 2 << 30  # bytes of statistics that are recorded at a time

Wanted = Sequence[tuple[Weight, Spec]]


@dataclass(frozen=True)
class Tuned:
    """The compressed parts of a weight and their errors."""

    parts: Parts
    error: float  # of the weight
    output_error: float | None = None  # of the layer on the calibration data
    scales: Tensor | None = None  # the weight was multiplied by them
    note: str = ""


@dataclass
class Tuning:
    """The calibration of a model; `statistics` are those of the current group of layers."""

    model: nn.Module
    data: Sequence[Sample]
    method: str | None
    activations: str | None
    statistics: dict[nn.Module, InputStatistics] = field(default_factory=dict)

    def groups(self, wanted: Wanted) -> Iterator[Wanted]:
        """Yield groups of weights whose statistics fit into memory, and record these.

        Layers of later groups see the inputs that the compressed layers before them compute.
        """
        group: list[tuple[Weight, Spec]] = []
        size = 0
        for weight, spec in wanted:
            needed = self._bytes(weight)
            if group and size + needed > _MEMORY:
                yield self._observed(group)
                group, size = [], 0
            group.append((weight, spec))
            size += needed
        yield self._observed(group)

    def _bytes(self, weight: Weight) -> int:
        if self.method is None or weight.axes is None:
            return 0
        inputs = weight.value.numel() // weight.value.shape[weight.axes[0]]
        return int(4 * inputs**2)

    def _observed(self, group: Wanted) -> Wanted:
        layers = [u.module for w, _ in group for u in w.users if takes_floats(u.module)]
        if self.data and layers:
            products = self.method is not None
            self.statistics = observe(self.model, layers, self.data, products=products)
        return group

    def tune(
        self, weight: Weight, value: Tensor, scheme: Scheme, layout: Layout, found: Tuned
    ) -> Tuned:
        """Return parts with a lower output error than `found`, which is rounded to nearest."""
        if self.method is None:
            return found
        seen = self.statistics.get(weight.module)
        if weight.ties or seen is None or seen.hessian is None:
            why = "a tied weight" if weight.ties else "no calibration data for this layer"
            return replace(found, note=f"rounded to nearest: {why}")
        context = _Layer(value, seen, scheme, layout)
        if self.method == "awq":
            if not isinstance(weight.module, nn.Linear) and not is_transposed_linear(weight.module):
                return replace(found, note="rounded to nearest: AWQ is for linear layers")
            return context.awq(found)
        if not supports(scheme, layout):
            return replace(found, note=f"rounded to nearest: GPTQ does not support {scheme.name}")
        return context.gptq(found)

    def attach(
        self, weight: Weight, spec: Spec, found: Tuned, dtype: torch.dtype
    ) -> tuple[str | None, str]:
        """Quantize and scale the inputs of the layer; return the dtype of its inputs and a note."""
        inputs, note = None, ""
        wanted = spec.inputs or self.activations
        for user in weight.users:
            if wanted is None or not takes_floats(user.module):
                continue
            seen = self.statistics.get(user.module)
            device = found_device(user.module)
            if not self.data:
                attach(user.module, QuantizeInputDynamically())
            elif seen is not None:
                attach(user.module, QuantizeInput(seen.low, seen.high, dtype).to(device))
            else:
                note = "inputs unchanged: no calibration data for this layer"
                continue
            inputs = wanted
        if found.scales is not None:
            factor = found.scales.reciprocal().to(dtype).to(found_device(weight.module))
            attach(weight.module, ScaleInput(factor))
        return inputs, note


def found_device(module: nn.Module) -> torch.device:
    """Return the device of a module."""
    return next(iter([*module.parameters(), *module.buffers()])).device


@dataclass(frozen=True)
class _Layer:
    """A weight, the inputs of its layer, and its scheme."""

    value: Tensor
    seen: InputStatistics
    scheme: Scheme
    layout: Layout

    def measured(self, parts: Parts, scales: Tensor | None = None, note: str = "") -> Tuned:
        """Return the parts with their errors."""
        dense = self.scheme.layer(parts, self.value.dtype)().float()
        rows, plain = to_rows(dense, self.layout), to_rows(self.value.float(), self.layout)
        if scales is not None:
            rows = rows / scales
        hessian = self.seen.hessian
        assert hessian is not None
        norm, total = float(plain.norm()), output_error(plain, hessian)
        error = float((rows - plain).norm()) / (norm or 1.0)
        wrong = output_error(rows - plain, hessian)
        relative = math.sqrt(max(wrong, 0.0) / total) if total else 0.0
        return Tuned(parts, error, relative, scales, note)

    def gptq(self, found: Tuned) -> Tuned:
        """Return the parts that GPTQ finds, unless rounding to nearest is better."""
        hessian = self.seen.hessian
        assert hessian is not None
        nearest = self.measured(found.parts, note="rounded to nearest: GPTQ is not better")
        tuned = self.measured(gptq(self.value, hessian, self.scheme, self.layout, found.parts))
        return min(tuned, nearest, key=lambda one: one.output_error or 0.0)

    def awq(self, found: Tuned) -> Tuned:
        """Return the parts of the weight multiplied by the scales that AWQ finds."""
        rows = to_rows(self.value.float(), self.layout)
        scales = search_scales(rows, torch.cat(self.seen.rows), self._rounded)
        if scales is None:
            return self.measured(found.parts, note="rounded to nearest: AWQ is not better")
        scales = scales.reciprocal().to(self.value.dtype).float().reciprocal()  # as it is stored
        tuned = self.measured(self._parts(rows * scales), scales)
        nearest = self.measured(found.parts, note="rounded to nearest: AWQ is not better")
        return min(tuned, nearest, key=lambda one: one.output_error or 0.0)

    def _parts(self, rows: Tensor) -> Parts:
        weight = rows.movedim(0, self.layout.channel).contiguous().to(self.value.dtype)
        return compress_in_slices(weight, self.scheme, self.layout)[0]

    def _rounded(self, rows: Tensor) -> Tensor:
        dense = self.scheme.layer(self._parts(rows.detach()), self.value.dtype)().float()
        return to_rows(dense, self.layout)


def make_tuning(
    model: nn.Module,
    method: str | None,
    activations: str | None,
    calibration: Any,
    *,
    per_layer: bool = False,
) -> Tuning | None:
    """Check the arguments of `compress` about calibration; return None if there are none.

    With `per_layer`, the scheme of each layer says whether its inputs are rounded.
    """
    if method not in (None, *METHODS):
        raise ConversionError(
            f"unknown method {method!r}\n  try   pass one of {', '.join(METHODS)}"
        )
    if activations not in (None, "int8"):
        raise ConversionError(
            f"activations={activations!r} is not supported\n  try   pass activations='int8'"
        )
    if method is not None and calibration is None:
        raise ConversionError(
            f"method={method!r} needs calibration data\n"
            "  try   pass calibration=[(x1,), (x2,)], inputs of the model"
        )
    if method is None and activations is None and not per_layer:
        if calibration is not None:
            raise ConversionError(
                "calibration is not used\n"
                "  try   pass method='gptq', method='awq' or activations='int8'"
            )
        return None
    return Tuning(model, [] if calibration is None else samples(calibration), method, activations)
