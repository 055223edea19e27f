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
from .schemes import SLICE, Layout, Parts, Scheme
from .selection import Plan, Rules, plan_of_layers, plan_of_patterns, selector
from .specs import Spec, to_spec
from .weights import Weight, find_weights, in_model_order, parametrized_rows

Schemes: TypeAlias = "str | Spec | Path | Mapping[Any, str | Spec | None]"


def compress(
    model: nn.Module,
    scheme: Schemes,
    *,
    block_size: int | None = None,
    only: Rules = (),
    skip: Rules = (),
    least: int = 1024,
) -> CompressionReport:
    """Compress the weights of linear, convolution, embedding and attention layers, in place.

    No data is needed. Each weight is freed as soon as it is compressed; a weight that several
    layers share is compressed once for all of them. The report lists every weight; `report.model`
    is the model itself, which exports and converts as before.

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
    """
    plan = restricted(model, make_plan(model, scheme, block_size), only, skip)
    return apply_plan(model, plan, least)


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


def apply_plan(model: nn.Module, plan: Plan, least: int) -> CompressionReport:
    """Compress each weight with the scheme that the plan chooses."""
    rows = {row.name: row for row in parametrized_rows(model)}
    for weight in find_weights(model):
        spec, why = choose_scheme(weight, plan, least)
        new_rows = unchanged_rows(weight, why) if spec is None else _compress(weight, spec)
        rows.update({row.name: row for row in new_rows})
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


def _compress(weight: Weight, spec: Spec) -> list[CompressedWeight]:
    scheme, block = spec.resolve()
    value = weight.value.detach().cpu()  # the sums need float64, which not every device has
    dtype, shape = value.dtype, tuple(value.shape)
    size = value.numel() * value.element_size()
    with torch.no_grad():
        parts, error = compress_in_slices(value, scheme, layout(weight, block))
        compressed_size = scheme.bytes(parts)
        layer = scheme.layer(parts, dtype).to(weight.value.device)
    for user in weight.users:
        put(user.module, user.attribute, layer)
        user.value = value.new_empty(0)  # free it: the list of weights lives until the end
    bits = 8 * compressed_size / math.prod(shape)
    first = CompressedWeight(weight.name, shape, scheme.name, bits, error, size, compressed_size)
    return [first, *(_tie(first, weight, tie) for tie in weight.ties)]


def compress_in_slices(value: Tensor, scheme: Scheme, layout: Layout) -> tuple[Parts, float]:
    """Return the compressed parts of a weight and the relative error of decompressing them."""
    shared = scheme.shared(value, layout)
    step = scheme.step(layout)
    row = max(value[0].numel(), 1)
    rows = max(SLICE // (row * step), 1) * step
    pieces: list[Parts] = []
    wrong = total = 0.0
    for part in value.split(rows, 0):
        numbers = part.float()
        pieces.append(scheme.slice(numbers, layout, shared, value.dtype))
        dense = scheme.layer({**shared, **pieces[-1]}, value.dtype)().float()
        total += float(numbers.double().square().sum())
        wrong += float((dense - numbers).double().square().sum())
    joined = {name: _concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
    error = math.sqrt(wrong / total) if total else math.sqrt(wrong)
    return {**shared, **joined}, error


def _concatenate(pieces: list[Tensor]) -> Tensor:
    if len(pieces) == 1:
        return pieces[0]
    if pieces[0].element_size() > 1 or pieces[0].dtype in (torch.int8, torch.uint8, torch.bool):
        return torch.cat(pieces)
    # torch.cat does not support 8-bit floats.
    return torch.cat([piece.view(torch.uint8) for piece in pieces]).view(pieces[0].dtype)


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
