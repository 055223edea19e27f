"""Choose a scheme for each weight and replace the weights by compressed layers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import ConversionError
from .compression_report import CompressedWeight, CompressionReport
from .memory import release_mapped_pages
from .placing import put
from .recipe import is_recipe, read_recipe
from .schemes import Layout, compress_in_slices
from .selection import Plan, Rules, plan_of_layers, plan_of_patterns, selector
from .specs import Spec, to_spec
from .tuning import Tuned, Tuning
from .weights import Weight, find_weights, in_model_order, parametrized_rows

Schemes: TypeAlias = "str | Spec | Path | Mapping[Any, str | Spec | None]"


def make_plan(model: nn.Module, scheme: Schemes, block_size: int | None) -> Plan:
    """Return the function that chooses the scheme of a weight."""
    if is_recipe(scheme):
        choose, _ = read_recipe(Path(scheme), activations=True)  # type: ignore[arg-type]
        return plan_of_layers(choose)
    if isinstance(scheme, Mapping):
        return plan_of_patterns(model, scheme, block_size)
    spec = to_spec(scheme, block_size)  # type: ignore[arg-type]
    return lambda weight: (spec, "")


def restricted(model: nn.Module, plan: Plan, only: Rules, skip: Rules) -> Plan:
    """Return the plan without the weights that `only` omits or `skip` names."""
    wanted = None if isinstance(only, tuple) and not only else selector(model, only, "only")
    unwanted = selector(model, skip, "skip")

    def choose(weight: Weight) -> tuple[Spec | None, str]:
        for user in weight.users:
            tied = "" if user is weight else f"tied to {user.name}: "
            if unwanted(user):
                return None, tied + "in skip"
        if wanted is not None and not any(wanted(user) for user in weight.users):
            return None, "not in only"
        return plan(weight)

    return choose


def apply_plan(
    model: nn.Module, plan: Plan, least: int, tuning: Tuning | None = None
) -> CompressionReport:
    """Compress each weight with the scheme that the plan chooses."""
    rows = {row.name: row for row in parametrized_rows(model)}
    chosen = [(weight, *choose_scheme(weight, plan, least)) for weight in find_weights(model)]
    for weight, _, why in (one for one in chosen if one[1] is None):
        rows.update({row.name: row for row in unchanged_rows(weight, why)})
    wanted = [(weight, spec) for weight, spec, _ in chosen if spec is not None]
    for group in [wanted] if tuning is None else tuning.groups(wanted):
        for weight, spec in group:
            rows.update({row.name: row for row in _compress(weight, spec, tuning)})
    report = CompressionReport(tuple(in_model_order(model, rows.values())), model)
    _check_anything_divides(report)
    return report


def choose_scheme(weight: Weight, plan: Plan, least: int) -> tuple[Spec | None, str]:
    """Return the scheme of a weight, or None and why the weight is left unchanged."""
    spec, why = plan(weight)
    if spec is None:
        return None, why
    for user in weight.users:
        if user.axes is None:
            tied = "" if user is weight else f"tied to {user.name}: "
            return None, f"{tied}{type(user.module).__name__} layers are not compressed"
    if len({user.axes for user in weight.users}) > 1:
        return None, f"tied to {weight.ties[0].name}: their inputs are on different axes"
    scheme, block = spec.resolve()
    why = _value_reason(weight.value, least) or scheme.skip_reason(layout(weight, block)) or ""
    return (None, why) if why else (spec, "")


def _value_reason(value: Tensor, least: int) -> str | None:
    if type(value) not in (nn.Parameter, Tensor):
        return f"already compressed ({type(value).__name__})"
    if value.is_meta:
        return "on the meta device: it has no values yet"
    if value.dtype not in (torch.float32, torch.float16, torch.bfloat16):
        return f"unsupported dtype {value.dtype}"
    if value.numel() < least:
        return f"too small: {value.numel()} elements"
    is_finite = bool(torch.isfinite(value.detach().sum(dtype=torch.float32)))
    release_mapped_pages(value)
    return None if is_finite else "contains a value that is not finite"


def layout(weight: Weight, block: int | None) -> Layout:
    """Return the layout of a weight in blocks."""
    assert weight.axes is not None
    return Layout(tuple(weight.value.shape), *weight.axes, block, weight.is_stacked)


def unchanged_rows(weight: Weight, why: str) -> list[CompressedWeight]:
    """Return the rows of a weight that is left unchanged, and of its ties."""
    value = weight.value
    size = value.numel() * value.element_size()
    bits = 8.0 * value.element_size()
    first = CompressedWeight(weight.name, tuple(value.shape), None, bits, 0.0, size, size, why)
    return [first, *(_tie(first, weight, tie) for tie in weight.ties)]


def _tie(first: CompressedWeight, weight: Weight, tie: Weight) -> CompressedWeight:
    """Return the row of a weight that shares the bytes of another one."""
    why = first.why if first.scheme is None else None
    note = f"tied to {weight.name}" + (f", {why}" if why else "")
    return CompressedWeight(
        tie.name, first.shape, first.scheme, first.bits, first.error, 0, 0, note
    )


def _compress(weight: Weight, spec: Spec, tuning: Tuning | None) -> list[CompressedWeight]:
    scheme, block = spec.resolve()
    value = weight.value.detach().cpu()  # the sums need float64, which not every device has
    dtype, shape = value.dtype, tuple(value.shape)
    size = value.numel() * value.element_size()
    with torch.no_grad():
        parts, error = compress_in_slices(value, scheme, layout(weight, block))
        found = Tuned(parts, error)
        if tuning is not None:
            found = tuning.tune(weight, value, scheme, layout(weight, block), found)
        compressed_size = scheme.bytes(found.parts)
        layer = scheme.layer(found.parts, dtype).to(weight.value.device)
    release_mapped_pages(value)
    for user in weight.users:
        put(user.module, user.attribute, layer)
        user.value = value.new_empty(0)  # free it: the list of weights lives until the end
    inputs, note = (None, "") if tuning is None else tuning.attach(weight, spec, found, dtype)
    first = CompressedWeight(
        weight.name,
        shape,
        scheme.name,
        8 * compressed_size / math.prod(shape),
        found.error,
        size,
        compressed_size,
        ", ".join(filter(None, (found.note, note))) or None,
        found.output_error,
        inputs,
    )
    return [first, *(_tie(first, weight, tie) for tie in weight.ties)]


def _check_anything_divides(report: CompressionReport) -> None:
    """Raise if no block size divides its weight; the message lists the reason of each."""
    alone = [row for row in report.left_alone if row.why and row.why.startswith("indivisible")]
    if report.compressed or not alone:
        return
    reasons = "\n".join(f"        {row.name}: {row.why}" for row in alone[:20])
    raise ConversionError(
        f"the block size divides no weight, so nothing is compressed\n{reasons}\n"
        "  try   pass a block_size that divides them"
    )
