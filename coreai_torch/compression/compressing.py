"""`compress`: compress the weights of a model in one call and without data."""

from __future__ import annotations

import fnmatch
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ..errors import ConversionError
from .placing import put
from .report import CompressedWeight, CompressionReport
from .schemes import KNOWN, SLICE, Layout, Parts, Scheme, scheme_named

Skip: TypeAlias = "str | type[nn.Module] | Callable[[str, nn.Module], bool]"

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
class _Weight:
    """A weight and all modules that share it."""

    name: str
    value: Tensor
    axes: tuple[int, int] | None
    module: nn.Module
    attribute: str
    ties: list[_Weight] = field(default_factory=list)

    @property
    def users(self) -> list[_Weight]:
        return [self, *self.ties]


def compress(
    model: nn.Module,
    scheme: str,
    *,
    block_size: int | None = None,
    skip: Skip | Iterable[Skip] = (),
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
        scheme: `int8`, `int4`, `uint4`, `fp8`, `fp4`, `palettize4`, `sparse50`,
            `sparse50+palettize4`, or the same with other bit widths and percentages.
        block_size: the number of inputs of one output that share a scale (by default all of them,
            with `fp4` 32); for a palette, the number of outputs that share a table (by default
            all).
        skip: weights or layers to leave unchanged: paths, with `*` and `?`, layer types, a
            function of path and layer, or a list of these.
        least: the minimum number of elements; smaller weights are left unchanged.
    """
    chosen = _scheme(scheme, block_size)
    block = chosen.block if block_size is None else block_size
    weights = _weights(model)
    skipped = _skipped(model, skip)
    rows = {row.name: row for row in _parametrized(model)}
    for weight in weights:
        why = _skip_reason(weight, chosen, block, skipped, least)
        new_rows = _unchanged_rows(weight, why) if why else _compress(weight, chosen, block)
        rows.update({row.name: row for row in new_rows})
    report = CompressionReport(tuple(rows[name] for name in _order(model, rows)), model)
    _check_block_size(report, chosen, block)
    return report


def _scheme(name: str, block_size: int | None) -> Scheme:
    found = scheme_named(name)
    if found is None:
        raise ConversionError(f"unknown scheme {name!r}\n  try   use one of {KNOWN}")
    if block_size is not None and not found.takes_block:
        raise ConversionError(
            f"{name} does not use blocks, but block_size is {block_size}\n"
            f"  try   call compress(model, {name!r})"
        )
    if block_size is not None and block_size < 1:
        raise ConversionError(
            f"block_size is {block_size}, it must be at least 1\n  try   pass block_size=32"
        )
    return found


def _axes(module: nn.Module, attribute: str) -> tuple[int, int] | None:
    for kind, (name, channel, across) in _AXES.items():
        if isinstance(module, kind) and attribute == name:
            return channel, across
    if type(module).__name__ == "Conv1D" and attribute == "weight":  # transformers: [in, out]
        return 1, 0
    return None


def _weights(model: nn.Module) -> list[_Weight]:
    """Return each parameter of rank 2 or more once; its other users become its ties."""
    found: dict[int, _Weight] = {}
    for path, module in model.named_modules():
        if isinstance(module, parametrize.ParametrizationList):
            continue
        for attribute, value in module.named_parameters(recurse=False):
            if value.dim() < 2:
                continue
            name = f"{path}.{attribute}" if path else attribute
            weight = _Weight(name, value, _axes(module, attribute), module, attribute)
            if id(value) in found:
                found[id(value)].ties.append(weight)
            else:
                found[id(value)] = weight
    return list(found.values())


def _parametrized(model: nn.Module) -> Iterator[CompressedWeight]:
    """Yield a row for each weight that is already parametrized (compressed, normalised, pruned)."""
    for path, module in model.named_modules():
        if not parametrize.is_parametrized(module):
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


def _order(model: nn.Module, rows: dict[str, CompressedWeight]) -> list[str]:
    """Sort the rows by module, since tied weights were added out of order."""
    positions = {path: at for at, (path, _) in enumerate(model.named_modules())}
    return sorted(rows, key=lambda name: positions[name.rpartition(".")[0]])


def _skipped(model: nn.Module, skip: Skip | Iterable[Skip]) -> Callable[[_Weight], bool]:
    one = isinstance(skip, str | type) or callable(skip)
    rules: Sequence[Skip] = [skip] if one else list(skip)  # type: ignore[list-item, arg-type]
    paths = [path for path, _ in model.named_modules()]
    paths += [name for name, _ in model.named_parameters(remove_duplicate=False)]
    for rule in rules:
        if isinstance(rule, str) and not any(fnmatch.fnmatchcase(path, rule) for path in paths):
            raise ConversionError(
                f"skip={rule!r} matches no layer and no weight\n"
                "  try   use a name from model.named_modules(), or a pattern with '*'"
            )
    return lambda weight: any(_matches(rule, weight) for rule in rules)


def _matches(rule: Any, weight: _Weight) -> bool:
    if isinstance(rule, str):
        parts = weight.name.split(".")
        above = (".".join(parts[:count]) for count in range(1, len(parts) + 1))
        return any(fnmatch.fnmatchcase(path, rule) for path in above)
    if isinstance(rule, type):
        return isinstance(weight.module, rule)
    return bool(rule(weight.name.rpartition(".")[0], weight.module))


def _skip_reason(
    weight: _Weight,
    scheme: Scheme,
    block: int | None,
    skipped: Callable[[_Weight], bool],
    least: int,
) -> str | None:
    """Return why a weight is left unchanged, or None."""
    for user in weight.users:
        tied = "" if user is weight else f"tied to {user.name}: "
        if skipped(user):
            return tied + "in skip"
        if user.axes is None:
            return f"{tied}{type(user.module).__name__} layers are not compressed"
    if len({user.axes for user in weight.users}) > 1:
        return f"tied to {weight.ties[0].name}: their inputs are on different axes"
    return _value_reason(weight.value, least) or scheme.skip_reason(_layout(weight, block))


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


def _layout(weight: _Weight, block: int | None) -> Layout:
    assert weight.axes is not None
    return Layout(tuple(weight.value.shape), *weight.axes, block)


def _unchanged_rows(weight: _Weight, why: str) -> list[CompressedWeight]:
    value = weight.value
    size = value.numel() * value.element_size()
    bits = 8.0 * value.element_size()
    first = CompressedWeight(weight.name, tuple(value.shape), None, bits, 0.0, size, size, why)
    return [first, *(_tie(first, weight, tie) for tie in weight.ties)]


def _tie(first: CompressedWeight, weight: _Weight, tie: _Weight) -> CompressedWeight:
    """Return the row of a weight that shares the bytes of another one."""
    why = first.why if first.scheme is None else None
    note = f"tied to {weight.name}" + (f", {why}" if why else "")
    return CompressedWeight(
        tie.name, first.shape, first.scheme, first.bits, first.error, 0, 0, note
    )


def _compress(weight: _Weight, scheme: Scheme, block: int | None) -> list[CompressedWeight]:
    value = weight.value.detach().cpu()  # the sums need float64, which not every device has
    dtype, shape = value.dtype, tuple(value.shape)
    size = value.numel() * value.element_size()
    with torch.no_grad():
        parts, error = _compress_in_slices(value, scheme, _layout(weight, block))
        compressed_size = scheme.bytes(parts)
        layer = scheme.layer(parts, dtype).to(weight.value.device)
    for user in weight.users:
        put(user.module, user.attribute, layer)
        user.value = value.new_empty(0)  # free it: the list of weights lives until the end
    bits = 8 * compressed_size / math.prod(shape)
    first = CompressedWeight(weight.name, shape, scheme.name, bits, error, size, compressed_size)
    return [first, *(_tie(first, weight, tie) for tie in weight.ties)]


def _compress_in_slices(value: Tensor, scheme: Scheme, layout: Layout) -> tuple[Parts, float]:
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


def _check_block_size(report: CompressionReport, scheme: Scheme, block: int | None) -> None:
    """Raise if the block size divides no weight; the message lists the reason of each."""
    alone = [row for row in report.left_alone if row.why and row.why.startswith("indivisible")]
    if report.compressed or not alone:
        return
    reasons = "\n".join(f"        {row.name}: {row.why}" for row in alone[:20])
    raise ConversionError(
        f"blocks of {block} divide no weight, so {scheme.name} compresses nothing\n{reasons}\n"
        "  try   pass a block_size that divides them"
    )
