"""`compress`: compress the weights and activations of a model in one call."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import ConversionError
from .applying import Schemes, apply_plan, make_plan, restricted
from .compression_report import CompressionReport
from .fitting import Goal, Limits, fit
from .measuring import Metric, Sensitivity
from .recipe import is_recipe, needs_calibration, read_recipe
from .selection import Rules
from .specs import Spec
from .tuning import make_tuning


def compress(
    model: nn.Module,
    scheme: Schemes | Sequence[str | Spec] | None = None,
    *,
    block_size: int | None = None,
    only: Rules = (),
    skip: Rules = (),
    least: int = 1024,
    method: str | None = None,
    activations: str | None = None,
    calibration: Any = None,
    target_bytes: int | None = None,
    max_error: float | None = None,
    sensitivity: Sensitivity | str | Path | None = None,
    metric: Metric | None = None,
) -> CompressionReport:
    """Compress weights of linear, convolution, embedding, attention and expert layers, in place.

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
            YAML file in the form of coreai-opt; it may round inputs of layers to 8 bits.
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
        target_bytes: the maximum size of the asset. A scheme per weight is picked from the table
            of `sensitivity`, so that the outputs change least; `scheme` lists the candidates.
        max_error: the maximum error of the model on the calibration data, or the maximum increase
            of the metric. Schemes are picked so that the weights are smallest.
        sensitivity: the table, or its JSON file; by default it is measured with the calibration
            data or the metric. A file that does not exist is written.
        metric: a function of the model that returns a number, lower for a better model, instead of
            the calibration data.
    """
    if target_bytes is not None or max_error is not None:
        goal = Goal(target_bytes, max_error, calibration, metric, sensitivity)
        limits = Limits(only, skip, least, block_size, scaled_inputs=method == "awq")
        fitted = fit(model, goal, scheme, limits)
        data = calibration if method or activations else None
        tuning = make_tuning(model, method, activations, data)
        return fitted.measured(apply_plan(model, fitted.plan, least, tuning))
    _check_unused(sensitivity=sensitivity, metric=metric)
    per_layer = is_recipe(scheme) and _rounds_inputs(Path(scheme), calibration)  # type: ignore[arg-type]
    tuning = make_tuning(model, method, activations, calibration, per_layer=per_layer)
    plan = make_plan(model, _one_scheme(scheme, activations), block_size)
    return apply_plan(model, restricted(model, plan, only, skip), least, tuning)


def _rounds_inputs(recipe: Path, calibration: Any) -> bool:
    """Return whether a YAML file rounds inputs of layers; raise if it needs calibration data."""
    rounds = any(spec.inputs for spec in read_recipe(recipe, activations=True)[1])
    if rounds and calibration is None and needs_calibration(recipe):
        raise ConversionError(
            f"{recipe} sets calibrate_activations, which needs calibration data\n"
            "  try   pass calibration=[(x1,), (x2,)], inputs of the model"
        )
    return rounds


def _check_unused(**given: Any) -> None:
    for name, value in given.items():
        if value is not None:
            raise ConversionError(
                f"{name} is not used\n  try   pass target_bytes or max_error with it"
            )


def _one_scheme(scheme: Any, activations: str | None) -> Schemes:
    if isinstance(scheme, list | tuple):
        raise ConversionError(
            f"scheme lists {len(scheme)} candidates, but nothing selects one of them\n"
            "  try   pass target_bytes or max_error, or a dictionary with a scheme per layer"
        )
    if scheme is not None:
        found: Schemes = scheme
        return found
    if activations is None:
        raise ConversionError(
            "compress needs a scheme\n  try   pass scheme='int8' or a scheme per layer"
        )
    return "int8"
