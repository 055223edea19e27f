"""Steps that combine elements: reductions, products, sorts, norms."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from choices import Choices
from pool import Step
from steps import has_axes, is_bool, is_float, is_number, makes


@makes
def exact_reduction(choose: Choices) -> Step | None:
    """Reduce; small sums of halves are exact."""
    place = choose.value()
    if place is None:
        return None
    axes, keep = choose.axes(place), choose.flag()
    table = {
        "sum": lambda x: x.sum(axes, keepdim=keep),
        "sum_all": lambda x: x.sum(),
        "amax": lambda x: x.amax(axes, keepdim=keep),
        "amin": lambda x: x.amin(axes, keepdim=keep),
        "any": lambda x: x.any(),
        "all": lambda x: x.all(),
        "max": lambda x: x.max(),
        "count_nonzero": lambda x: x.count_nonzero(axes) if axes else x.count_nonzero(),
        "aminmax": lambda x: x.aminmax()[1],
    }
    name = choose.one_of(list(table))
    jumps = name in ("any", "all", "count_nonzero")
    return Step(f"{name} {axes} {keep}", table[name], (place,), exact=not jumps, jumps=jumps)


@makes
def axis_reduction(choose: Choices) -> Step | None:
    place = choose.value(has_axes)
    if place is None:
        return None
    axis, keep = choose.axis(place), choose.flag()
    table = {
        "max": lambda x: x.max(axis, keepdim=keep).values,
        "min": lambda x: x.min(axis, keepdim=keep).values,
        "cumsum": lambda x: x.cumsum(axis),
        "sort": lambda x: x.sort(axis, descending=keep).values,
        "topk": lambda x: x.topk(min(2, x.shape[axis]), axis, largest=keep).values,
        "kthvalue": lambda x: x.kthvalue(1, axis, keep).values,
        "median": lambda x: x.median(axis, keep).values,
        "cummax": lambda x: x.cummax(axis).values,
        "cummin": lambda x: x.cummin(axis).values,
        "prod": lambda x: x.prod(axis, keepdim=keep),
        "diff": lambda x: x.diff(dim=axis),
    }
    name = choose.one_of(list(table))
    return Step(f"{name} {axis} {keep}", table[name], (place,), exact=True)


@makes
def places(choose: Choices) -> Step | None:
    """Return indices: argmax and argmin take the first of equal elements, sorts are stable."""
    place = choose.value(lambda h: has_axes(h) and h.exact)
    if place is None:
        return None
    axis, keep = choose.axis(place), choose.flag()
    table = {
        "argmax": lambda x: x.argmax(axis, keepdim=keep),
        "argmin": lambda x: x.argmin(axis, keepdim=keep),
        "argmax_all": lambda x: x.argmax(),
        "argsort": lambda x: x.argsort(dim=axis, descending=keep, stable=True),
        "any": lambda x: x.any(axis, keepdim=keep),
        "all": lambda x: x.all(axis, keepdim=keep),
        "one_hot": lambda x: F.one_hot(x.long() % 5, 5),
        "bucketize": lambda x: torch.bucketize(x, torch.tensor([-2.0, 0.0, 1.5]), right=keep),
    }
    name = choose.one_of(list(table))
    return Step(f"{name} {axis} {keep}", table[name], (place,), jumps=True)


@makes
def smooth_reduction(choose: Choices) -> Step | None:
    """Apply a norm to at least one element: export rejects empty norms that eager accepts."""
    place = choose.value(lambda h: is_float(h) and has_axes(h) and h.eager.numel() > 0)
    if place is None:
        return None
    axis, keep = choose.axis(place), choose.flag()
    table = {
        "mean": lambda x: x.mean(axis, keepdim=keep),
        "mean_all": lambda x: x.mean(),
        "var": lambda x: x.var(axis, correction=0, keepdim=keep),
        "logsumexp": lambda x: x.logsumexp(axis, keepdim=keep),
        "softmax": lambda x: x.softmax(axis),
        "log_softmax": lambda x: x.log_softmax(axis),
        "softmin": lambda x: F.softmin(x, axis),
        "norm1": lambda x: torch.linalg.vector_norm(x, 1, axis, keep),
        "norm2": lambda x: torch.linalg.vector_norm(x + 1, 2, axis, keep),
        "norminf": lambda x: torch.linalg.vector_norm(x, float("inf"), axis, keep),
        "layer_norm": lambda x: F.layer_norm(x * 2, x.shape[axis:] if axis < 0 else x.shape[-1:]),
        "glu": lambda x: F.glu(torch.cat([x, x], axis), axis),
        "logcumsumexp": lambda x: x.logcumsumexp(axis),
        "normalize": lambda x: F.normalize(x + 1, dim=axis),
    }
    name = choose.one_of(list(table))
    return Step(f"{name} {axis} {keep}", table[name], (place,))


@makes
def product(choose: Choices) -> Step | None:
    """Multiply a matrix with itself, with a constant, or with another value that fits."""
    place = choose.value(lambda h: h.eager.dim() > 1 and is_number(h) and h.eager.numel() > 0)
    if place is None:
        return None
    x = choose.eager(place)
    weight = choose.tensor((3, x.shape[-1]), x.dtype)
    vector = choose.tensor((x.shape[-1],), x.dtype)

    def like(constant, x):
        return constant.to(x.dtype)

    table = {
        "self": lambda x: x @ x.mT,
        "gram": lambda x: x.mT @ x,
        "weight": lambda x: x @ like(weight, x).T,
        "linear": lambda x: F.linear(x, like(weight, x), like(vector[:1], x).expand(3)),
        "vector": lambda x: x @ like(vector, x),
        "einsum": lambda x: torch.einsum("...ij,kj->...ki", x, like(weight, x)),
        "weight_first": lambda x: like(weight, x) @ x.mT,
    }
    name = choose.one_of(list(table))
    return Step(f"matmul {name}", table[name], (place,), exact=True)


@makes
def attention(choose: Choices) -> Step | None:
    place = choose.value(lambda h: is_float(h) and h.eager.dim() in (3, 4) and h.eager.numel() > 0)
    if place is None:
        return None
    causal = choose.flag()
    name = choose.one_of(["sdpa", "conv1d", "max_pool", "avg_pool"])
    table = {
        "sdpa": lambda x: F.scaled_dot_product_attention(x, x / 2, x, is_causal=causal),
        "conv1d": lambda x: F.conv1d(
            x.flatten(0, -3), torch.ones(2, x.shape[-2], 2).to(x.dtype), padding=1
        ),
        "max_pool": lambda x: F.max_pool1d(x.flatten(0, -3), 2, 1, 1, ceil_mode=causal),
        "avg_pool": lambda x: F.avg_pool1d(x.flatten(0, -3), 2, 1, 1, count_include_pad=causal),
    }
    return Step(f"{name} {causal}", table[name], (place,))


@makes
def counted(choose: Choices) -> Step | None:
    """Convert booleans to integers."""
    place = choose.value(is_bool)
    if place is None:
        return None
    table = {
        "sum": lambda x: x.sum(),
        "cumsum": lambda x: x.flatten().cumsum(0),
        "float": lambda x: x.float().sum(),
        "prod": lambda x: x.prod(),
    }
    name = choose.one_of(list(table))
    return Step(name, table[name], (place,), exact=True)
