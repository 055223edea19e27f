"""How each op of a decoder is computed in the layout of the Neural Engine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

import torch
from torch import Tensor, fx

from ....torch_compat import aten
from .capturing import TOKENS
from .layout import BY_HEAD, BY_TOKEN, FLAT, LayoutError, Placed, from_tokens

Rule: TypeAlias = Callable[..., Any]

ELEMENTWISE = {
    aten.add.Tensor,
    aten.sub.Tensor,
    aten.mul.Tensor,
    aten.div.Tensor,
    aten.neg.default,
    aten.abs.default,
    aten.pow.Tensor_Scalar,
    aten.square.default,
    aten.sqrt.default,
    aten.rsqrt.default,
    aten.reciprocal.default,
    aten.exp.default,
    aten.tanh.default,
    aten.sigmoid.default,
    aten.relu.default,
    aten.silu.default,
    aten.gelu.default,
    aten.clamp.default,
    aten.to.dtype,
}
IDENTITIES = {
    aten.alias.default,
    aten.clone.default,
    aten.contiguous.default,
    aten.detach.default,
    aten.dropout.default,
}
IGNORED = {aten._assert_tensor_metadata.default}


def elementwise(node: fx.Node, *args: Any, **kwargs: Any) -> Placed:
    """Apply an op to the stored tensors."""
    placed = [one for one in args if isinstance(one, Placed)]
    if len({one.axes for one in placed}) != 1:
        raise LayoutError("operands have different axes")
    first = placed[0]

    def stored(one: Any) -> Any:
        if isinstance(one, Placed):
            return one.data
        return first.operand(one) if isinstance(one, Tensor) else one

    return first.with_data(node.target(*map(stored, args), **kwargs))


def convolution(node: fx.Node, x: Placed, weight: Tensor, bias: Tensor | None = None) -> Placed:
    """Compute a linear layer as a 1x1 convolution; the weight may have the shape of one already."""
    if x.axes != FLAT:
        raise LayoutError("a linear layer is applied to heads")
    kernel = weight if weight.dim() == 4 else weight[:, :, None, None]
    return from_tokens(torch.nn.functional.conv2d(x.data, kernel, bias))


def mean(node: fx.Node, x: Placed, dims: list[int], keepdim: bool = False, **_: Any) -> Placed:
    """Average over the last axis."""
    if [dim % len(x.axes) for dim in dims] != [len(x.axes) - 1] or not keepdim:
        raise LayoutError("a mean is not over the last axis only")
    return x.with_data(x.data.mean(x.last, keepdim=True))


def layer_norm(
    node: fx.Node,
    x: Placed,
    sizes: list[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    epsilon: float = 1e-5,
    *_: Any,
) -> Placed:
    """Normalize over the last axis, in float32 as torch does."""
    if len(sizes) != 1:
        raise LayoutError(f"a norm is over {len(sizes)} axes")
    data = x.data.float()
    centered = data - data.mean(x.last, keepdim=True)
    variance = centered.square().mean(x.last, keepdim=True)
    normal = centered * torch.rsqrt(variance + epsilon)
    if weight is not None:
        normal = normal * x.operand(weight.float())
    if bias is not None:
        normal = normal + x.operand(bias.float())
    return x.with_data(normal.to(x.data.dtype))


def reshape(node: fx.Node, x: Placed, *_: Any) -> Placed:
    """Split channels into heads, or join heads; the sizes are those of the captured model."""
    before, after = (tuple(one.meta["val"].shape) for one in (node.args[0], node))
    if before == after:
        return x
    if before[:2] == after[:2] and x.axes == FLAT and len(after) == 4:
        return x.split(*after[2:])
    if before[:2] == after[:2] and x.axes == BY_TOKEN and len(after) == 3:
        return from_tokens(x.channels)
    raise LayoutError(f"{_sizes(before)} is reshaped to {_sizes(after)}")


def transpose(node: fx.Node, x: Placed, first: int, second: int) -> Placed:
    """Swap two axes."""
    return x.swapped(first, second)


def unsqueeze(node: fx.Node, x: Placed, axis: int) -> Placed:
    """Make `[1, 1, tokens, width]` from `[1, tokens, width]`."""
    if x.axes != FLAT or axis != 1:
        raise LayoutError(f"an axis is inserted at {axis}")
    _, width, _, tokens = x.data.shape
    return Placed(x.data.reshape(1, 1, width, tokens), BY_HEAD)


def slice_(
    node: fx.Node, x: Placed, axis: int = 0, start: int = 0, end: int | None = None, step: int = 1
) -> Placed:
    """Slice the last axis; a slice of all elements of another axis changes nothing."""
    sizes = node.args[0].meta["val"].shape
    taken = range(sizes[axis])[slice(start, end, step)]
    if len(taken) == sizes[axis]:
        return x
    if axis % len(sizes) != len(sizes) - 1 or step != 1:
        raise LayoutError(f"axis {axis} of {_sizes(sizes)} is sliced")
    return x.with_data(x.data.narrow(x.last, taken.start, len(taken)))


def cat(node: fx.Node, parts: list[Placed], axis: int = 0) -> Placed:
    """Concatenate along the last axis."""
    first = parts[0]
    if not all(isinstance(one, Placed) and one.axes == first.axes for one in parts):
        raise LayoutError("tensors with different axes are concatenated")
    if axis % len(first.axes) != len(first.axes) - 1:
        raise LayoutError(f"tensors are concatenated along axis {axis}")
    return first.with_data(torch.cat([one.data for one in parts], first.last))


def split(node: fx.Node, x: Placed, sizes: Any, axis: int = 0) -> list[Placed]:
    """Split the last axis into parts of a size, or of given sizes."""
    if axis % len(x.axes) != len(x.axes) - 1:
        raise LayoutError(f"axis {axis} is split")
    return [x.with_data(part) for part in x.data.split(sizes, x.last)]


def chunk(node: fx.Node, x: Placed, count: int, axis: int = 0) -> list[Placed]:
    """Split the last axis into equal parts."""
    return split(node, x, math.ceil(x.data.shape[x.last] / count), axis)


def _sizes(shape: Iterable[int]) -> str:
    return str(["tokens" if size == TOKENS else size for size in shape]).replace("'", "")


RULES: dict[Any, Rule] = {
    **dict.fromkeys(ELEMENTWISE, elementwise),
    **dict.fromkeys(IDENTITIES, lambda node, x, *_, **__: x),
    aten.linear.default: convolution,
    aten.mean.dim: mean,
    aten.layer_norm.default: layer_norm,
    aten.view.default: reshape,
    aten.reshape.default: reshape,
    aten.transpose.int: transpose,
    aten.unsqueeze.default: unsqueeze,
    aten.slice.Tensor: slice_,
    aten.cat.default: cat,
    aten.split.Tensor: split,
    aten.split_with_sizes.default: split,
    aten.chunk.default: chunk,
}
