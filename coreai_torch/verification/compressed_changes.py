"""Find elements of a compressed weight that are not those which compression gives.

Compression rounds each element to the nearest number that its block can represent. If a few
elements of a weight are others, they were changed afterwards. Methods that choose other numbers on
purpose (GPTQ, training with rounding) do so for many elements; these are not reported.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from ..asset.changed_constants import ChangedConstant
from ..asset.reading import Op

_MARGIN = 0.1  # of the distance to the next level: half precision moves the middle between two
_MOST = 0.2  # share of elements from which on the method does not round to the nearest
_ZEROS = 0.25  # share of zeros from which on a weight counts as pruned
_SHIFT_SCALE, _PALETTE = "coreai.blockwise_shift_scale", "coreai.lut_to_dense"


def changed_elements(
    name: str, value: Tensor, dense: Tensor, op: Op, constants: Mapping[int, Tensor]
) -> ChangedConstant | None:
    """Return what differs in a decompressed weight but is not due to rounding, if there is any.

    `op` decompressed it; `constants` has the constants of its function by value number.
    """
    operands = [constants.get(number) for number in op.operands]
    value, dense = value.detach().double(), dense.detach().double()
    if op.name == _SHIFT_SCALE:
        far = _not_nearest_level(value, dense, operands[1:])
    elif op.name == _PALETTE:
        far = _not_nearest_entry(value, dense, operands[1])
    else:
        far = None
    if far is None:
        return None
    if float((dense == 0).double().mean()) > _ZEROS:
        far &= dense != 0  # pruned
    if not far.any() or float(far.double().mean()) > _MOST:
        return None
    module, place = name.rpartition(".")[0], str(op.place)
    return ChangedConstant(
        name,
        module,
        str(op.types[0]),
        value.numel(),
        int(far.sum()),
        float((value - dense)[far].abs().max()),
        float(value.abs().max()),
        op.name.removeprefix("coreai."),
        place,
    )


def _not_nearest_level(
    value: Tensor, dense: Tensor, parameters: Sequence[Tensor | None]
) -> Tensor | None:
    """Return the mask of the elements for which another code would be nearer."""
    if len(parameters) != 3 or any(p is None for p in parameters):
        return None
    scale, before, after = (_spread(p.double(), dense) for p in parameters if p is not None)
    if not bool((scale != 0).all()):
        return None
    codes = (dense - after) / scale + before
    wanted = codes + (value - dense) / scale
    levels = codes.mul(1e3).round().div(1e3).unique()
    return _is_far(wanted, codes, levels)


def _not_nearest_entry(value: Tensor, dense: Tensor, palette: Tensor | None) -> Tensor | None:
    """Return the mask of the elements for which another entry of the palette would be nearer."""
    if palette is None or palette.shape[-1] != 1 or palette.dim() != value.dim() + 2:
        return None
    *counts, entries, _ = palette.shape
    shape = [n for d, b in zip(value.shape, counts, strict=True) for n in (b, d // b)]
    order = [*range(0, 2 * value.dim(), 2), *range(1, 2 * value.dim(), 2)]
    blocks = [x.reshape(shape).permute(order).flatten(value.dim()) for x in (value, dense)]
    rows = [x.reshape(math.prod(counts), -1) for x in blocks]
    tables = palette.double().reshape(-1, entries)
    far = [_is_far(v, d, t.unique()) for v, d, t in zip(*rows, tables, strict=True)]
    flat = torch.stack(far).reshape([shape[axis] for axis in order])
    back = [n for axis in range(value.dim()) for n in (axis, value.dim() + axis)]
    return flat.permute(back).reshape(value.shape)


def _spread(parameter: Tensor, like: Tensor) -> Tensor:
    """Repeat the parameters of blocks for each of their elements."""
    for axis, (blocks, size) in enumerate(zip(parameter.shape, like.shape, strict=True)):
        parameter = parameter.repeat_interleave(size // blocks, axis)
    return parameter


def _is_far(wanted: Tensor, taken: Tensor, levels: Tensor) -> Tensor:
    """Return the mask of the elements that are nearer to another level than to the one taken."""
    above = torch.searchsorted(levels, wanted).clamp(max=len(levels) - 1)
    ends = levels[above], levels[(above - 1).clamp(min=0)]
    nearest = torch.minimum(*((wanted - end).abs() for end in ends))
    gap = levels.diff().min() if len(levels) > 1 else levels.new_ones(())
    return (wanted - taken).abs() > nearest + _MARGIN * gap
