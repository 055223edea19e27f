"""Measure how much each weight, compressed alone, changes the outputs of the model."""

from __future__ import annotations

import hashlib
import io
import json
import math
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

from ..errors import ConversionError
from ..progress import progress
from .applying import choose_scheme, layout, restricted
from .calibration import Sample, evaluating, outputs, samples
from .schemes import compress_in_slices
from .selection import Rules
from .specs import Spec, to_spec
from .weights import Weight, find_weights

Metric: TypeAlias = Callable[[nn.Module], float]
CANDIDATES = ("int8", "int6", "int4/32", "int3/32")
_VERSION = 1


@dataclass(frozen=True)
class SensitivityRow:
    """The effect of compressing one weight with one scheme."""

    weight: str
    scheme: str  # with its block size: int4/32
    bytes: int
    error: float  # of the model
    weight_error: float


@dataclass
class Sensitivity:
    """A table of the model's error per weight and scheme; `str(table)` prints it."""

    weights: dict[str, int]  # bytes of each weight that is not compressed
    rows: list[SensitivityRow] = field(default_factory=list)
    model: str = ""  # digest of the weights that were measured
    data: str = ""  # digest of the inputs, or the name of the metric
    # Whether errors of single weights are added, as for a metric, or their squares.
    additive: bool = False

    def find(self, weight: str, scheme: str | Spec) -> SensitivityRow | None:
        """Return the row of a weight and a scheme, or None."""
        wanted = (weight, str(scheme))
        return next((row for row in self.rows if (row.weight, row.scheme) == wanted), None)

    def joint_error(self, rows: Sequence[SensitivityRow]) -> float:
        """Return the expected error if several weights are compressed together."""
        if self.additive:
            return sum(max(row.error, 0.0) for row in rows)
        return math.sqrt(sum(row.error**2 for row in rows))

    def save(self, path: str | Path) -> None:
        """Write the table as JSON; an interrupted call leaves the old file."""
        path = Path(path)
        partial = path.with_name(f".{path.name}.partial")
        content = {"version": _VERSION, **asdict(self)}
        partial.write_text(json.dumps(content, indent=1), "utf-8")
        os.replace(partial, path)

    @classmethod
    def load(cls, path: str | Path) -> Sensitivity:
        """Read a table that `save` wrote."""
        try:
            content = json.loads(Path(path).read_text("utf-8"))
            if content.pop("version") != _VERSION:
                raise ValueError("it has another version")
            rows = [SensitivityRow(**row) for row in content.pop("rows")]
            return cls(rows=rows, **content)
        except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
            raise ConversionError(
                f"{path} is not a sensitivity table: {error}\n"
                "  try   pass a file that coreai_torch.sensitivity wrote"
            ) from error

    def __str__(self) -> str:
        """Return a table with a row per weight and a column per scheme."""
        from rich.console import Console
        from rich.table import Table

        schemes = list(dict.fromkeys(row.scheme for row in self.rows))
        table = Table(box=None, pad_edge=False)
        table.add_column("weight")
        for name in ("bytes", *schemes):
            table.add_column(name, justify="right")
        for name, size in self.weights.items():
            found = [self.find(name, scheme) for scheme in schemes]
            cells = ["" if row is None else _shown(row.error, self.additive) for row in found]
            table.add_row(name, f"{size:,}", *cells)
        console = Console(file=io.StringIO(), width=200, color_system=None)
        console.print(table)
        printed: str = console.file.getvalue()  # type: ignore[attr-defined]
        return "\n".join(line.rstrip() for line in printed.splitlines())


def _shown(error: float, additive: bool) -> str:
    return f"{error:.4g}" if additive else f"{error:.3%}"


class Meter:
    """Measure the error of a model whose weights are changed, relative to its state at first."""

    def __init__(self, model: nn.Module, inputs: Any, metric: Metric | None) -> None:
        if (inputs is None) == (metric is None):
            raise ConversionError(
                "the error of the model needs either inputs or a metric\n"
                "  try   pass inputs of the model, or metric=, a function that returns a number"
            )
        self.model, self.metric = model, metric
        self._data: list[Sample] = [] if inputs is None else samples(inputs)
        self._first: list[Tensor] = []
        self._baseline = 0.0
        if metric is None:
            self._first = outputs(model, self._data)
        else:
            with evaluating(model):
                self._baseline = float(metric(model))

    def error(self) -> float:
        """Return the relative error of the outputs, or the increase of the metric."""
        if self.metric is not None:
            with evaluating(self.model):
                return float(self.metric(self.model)) - self._baseline
        found = outputs(self.model, self._data)
        wrong = sum(
            float((a - b).double().square().sum()) for a, b in zip(found, self._first, strict=True)
        )
        total = sum(float(x.double().square().sum()) for x in self._first)
        return math.sqrt(wrong / total) if total else math.sqrt(wrong)

    def digest(self) -> str:
        """Return a text that identifies the inputs or the metric."""
        if self.metric is not None:
            return f"metric {getattr(self.metric, '__qualname__', type(self.metric).__name__)}"
        return digest({str(at): x for at, x in enumerate(self._first)})


def sensitivity(
    model: nn.Module,
    inputs: Any = None,
    *,
    metric: Metric | None = None,
    schemes: Sequence[str | Spec] = CANDIDATES,
    only: Rules = (),
    skip: Rules = (),
    least: int = 1024,
    path: str | Path | None = None,
) -> Sensitivity:
    """Compress each weight alone with each scheme, and measure the error of the model.

    The model is unchanged afterwards. The error is the root mean square of the change of the
    outputs, relative to the outputs, or the increase of a metric.

    Args:
        model: the model.
        inputs: inputs of the model: a list of tensors, tuples of args or dictionaries of kwargs.
        metric: a function of the model that returns a number, lower for a better model; instead
            of `inputs`.
        schemes: the schemes to try, with their block sizes, as `int4/32`.
        only: the weights or layers to measure, as in `compress`.
        skip: weights or layers to leave out, as in `compress`.
        least: the minimum number of elements of a weight.
        path: a JSON file that is written after each measurement; if it exists, its measurements
            are reused.
    """
    specs = [to_spec(scheme) for scheme in schemes]
    meter = Meter(model, inputs, metric)
    weights = find_weights(model)
    table = _start(model, weights, meter, path)
    plans = [restricted(model, _constant(spec), only, skip) for spec in specs]
    missing = [
        (weight, spec)
        for weight in weights
        for spec, plan in zip(specs, plans, strict=True)
        if table.find(weight.name, spec) is None and choose_scheme(weight, plan, least)[0]
    ]
    with progress("measuring", len(missing)) as advance:
        for weight, spec in missing:
            table.rows.append(_measure(weight, spec, meter))
            if path is not None:
                table.save(path)
            advance()
    if path is not None:
        table.save(path)
    return table


def _constant(spec: Spec) -> Callable[[Weight], tuple[Spec | None, str]]:
    return lambda weight: (spec, "")


def _start(
    model: nn.Module, weights: Sequence[Weight], meter: Meter, path: str | Path | None
) -> Sensitivity:
    """Return the table of the file, or an empty one."""
    sizes = {w.name: w.value.numel() * w.value.element_size() for w in weights}
    fresh = Sensitivity(sizes, [], model_digest(weights), meter.digest(), meter.metric is not None)
    if path is None or not Path(path).exists():
        return fresh
    found = Sensitivity.load(path)
    if found.data != fresh.data:
        raise ConversionError(
            f"{path} was measured with other inputs\n  try   pass another file, or delete this one"
        )
    check_model(found, weights, str(path))
    return found


def model_digest(weights: Sequence[Weight]) -> str:
    """Return a text that identifies the weights of a model."""
    return digest({weight.name: weight.value for weight in weights})


def check_model(table: Sensitivity, weights: Sequence[Weight], shown: str) -> None:
    """Raise if the table was measured with other weights."""
    if table.model != model_digest(weights):
        raise ConversionError(
            f"{shown} was measured with another model\n"
            "  try   measure this model, with another file"
        )


def digest(tensors: Mapping[str, Tensor]) -> str:
    """Return a short hash of names, shapes and some numbers of tensors."""
    found = hashlib.sha256()
    for name, value in tensors.items():
        flat = value.detach().flatten()
        some = flat[:: max(1, flat.numel() // 1024)].double().cpu().contiguous()
        found.update(f"{name} {tuple(value.shape)} {value.dtype}".encode())
        found.update(some.numpy().tobytes())
    return found.hexdigest()[:16]


def _measure(weight: Weight, spec: Spec, meter: Meter) -> SensitivityRow:
    dense, size, weight_error = compressed_value(weight, spec)
    with replaced([(weight, dense)]):
        error = meter.error()
    return SensitivityRow(weight.name, str(spec), size, error, weight_error)


def compressed_value(weight: Weight, spec: Spec) -> tuple[Tensor, int, float]:
    """Return the weight after compression, its bytes and its relative error."""
    scheme, block = spec.resolve()
    value = weight.value.detach().cpu()
    with torch.no_grad():
        parts, error = compress_in_slices(value, scheme, layout(weight, block))
        dense = scheme.layer(parts, value.dtype)().to(weight.value)
    return dense, scheme.bytes(parts), error


@contextmanager
def replaced(values: Sequence[tuple[Weight, Tensor]]) -> Iterator[None]:
    """Replace the values of weights for a while."""
    kept = [weight.value.data for weight, _ in values]
    for weight, value in values:
        weight.value.data = value
    try:
        yield
    finally:
        for (weight, _), value in zip(values, kept, strict=True):
            weight.value.data = value
