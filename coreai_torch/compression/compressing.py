"""`compress`: compress the weights and activations of a model in one call."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import ConversionError
from .placing import put
from .recipe import is_recipe, read_recipe
from .report import CompressedWeight, CompressionReport
from .schemes import Layout
from .selection import Plan, Rules, plan_of_layers, plan_of_patterns, selector
from .slicing import compress_in_slices
from .specs import Spec, to_spec
from .tuning import Tuned, Tuning, make_tuning
from .weights import Weight, find_weights, in_model_order, parametrized_rows

Schemes: TypeAlias = "str | Spec | Path | Mapping[Any, str | Spec | None]"


def compress(
    model: nn.Module,
    scheme: Schemes | None = None,
    *,
    block_size: int | None = None,
    only: Rules = (),
    skip: Rules = (),
    least: int = 1024,
    method: str | None = None,
    activations: str | None = None,
    calibration: Any = None,
) -> CompressionReport:
    """Compress the weights of linear, convolution, embedding and attention layers, in place.

    Only `method` and static `activations` need data. Each weight is freed as soon as it is
    compressed; a weight that several layers share is compressed once for all of them. The report
    lists every weight; `report.model` is the model itself, which exports and converts as before.

    ```python
    large = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 4))
    report = coreai_torch.compress(large, "int4", block_size=32, skip="1")
    print(report)
    ```

    Args:
        model: the model, changed in place.
        scheme: `int8`, `int4`, `uint4`, `fp8`, `fp4`, `palettize4`, `sparse50`, `sparse2:4`,
            `sparse50+int8`, `sparse50+palettize4`, or the same with other bit widths and
            percentages, and with a block size as in `int4/32`. A dictionary gives a scheme per
            layer, as in `{"layers.*.mlp": "int4", "lm_head": "int8"}`: its keys are rules as in
            `skip`, the first that matches decides, and None leaves weights unchanged. A path is a
            YAML file in the form of coreai-opt.
        block_size: the number of inputs of one output that share a scale (by default all of them,
            with `fp4` 32); for a palette, the number of outputs that share a table (by default
            all).
        only: the weights or layers to compress, given as in `skip`; by default all.
        skip: weights or layers to leave unchanged: paths, with `*` and `?`, layer types, a
            function of path and layer, or a list of these.
        least: the minimum number of elements; smaller weights are left unchanged.
        method: `gptq` or `awq`, which round weights so that the outputs of each layer change least
            on the calibration data; by default to the nearest number.
        activations: `int8` to round the inputs of compressed layers to 8 bits too, with scales
            from the calibration data, or without data with scales computed at run time. The
            default scheme is then `int8`.
        calibration: a list of inputs of the model: each a tensor, a tuple of args or a dictionary
            of kwargs.
    """
    tuning = make_tuning(model, method, activations, calibration)
    if scheme is None:
        scheme = _default_scheme(activations)
    plan = restricted(model, make_plan(model, scheme, block_size), only, skip)
    return apply_plan(model, plan, least, tuning)


def _default_scheme(activations: str | None) -> str:
    if activations is None:
        raise ConversionError(
            "compress needs a scheme\n  try   pass scheme='int8' or a scheme per layer"
        )
    return "int8"


def make_plan(model: nn.Module, scheme: Schemes, block_size: int | None) -> Plan:
    """Return the function that chooses the scheme of a weight."""
    if is_recipe(scheme):
        choose, _ = read_recipe(Path(scheme))  # type: ignore[arg-type]
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
    if not bool(torch.isfinite(value.detach().sum(dtype=torch.float32))):
        return "contains a value that is not finite"
    return None


def layout(weight: Weight, block: int | None) -> Layout:
    """Return the layout of a weight in blocks."""
    assert weight.axes is not None
    return Layout(tuple(weight.value.shape), *weight.axes, block)


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
    for user in weight.users:
        put(user.module, user.attribute, layer)
        user.value = value.new_empty(0)  # free it: the list of weights lives until the end
    inputs, note = (None, "") if tuning is None else tuning.attach(weight, found, dtype)
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
