"""Recognize RMS norms: `x / sqrt(mean(x²) + eps) * scale`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx as fx

from ...fx.editing import Writer
from ...torch_compat import aten
from . import composites
from .pattern import (
    Match,
    Mismatch,
    Surroundings,
    arguments,
    cast_from,
    dtype_of,
    is_call,
    is_number,
    is_tensor,
    last_axis,
    operands,
    product_with,
    rank_of,
    shape_of,
    through,
    unwidened,
)

COMPOSITE = "rms_norm"
ANCHORS = (
    aten.rms_norm.default,
    aten.rsqrt.default,
    aten.sqrt.default,
    aten.pow.Tensor_Scalar,
)


def match(anchor: fx.Node, around: Surroundings) -> Match | None:
    """Return the norm around an inverse root, or the one that export did not decompose."""
    if is_call(anchor, aten.rms_norm.default):
        return _whole(anchor)
    root = _Root.of(anchor)
    if root is None:
        return None
    statistics = _Statistics.of(root, around)
    if statistics is None:
        return None
    normed = _normed(root, statistics, around)
    return _scaled(normed, statistics, [*statistics.inside, *root.inside], around)


def _whole(node: fx.Node) -> Match:
    if len(arguments(node)["normalized_shape"]) > 1:
        raise Mismatch("it is over more axes than the last")
    return Match(node, kept=True)


@dataclass(frozen=True)
class _Root:
    """Match `radicand ** -0.5`, or a root that something is divided by."""

    node: fx.Node
    radicand: fx.Node
    inside: tuple[fx.Node, ...]
    divides: bool = False

    @classmethod
    def of(cls, anchor: fx.Node) -> _Root | None:
        given = arguments(anchor)
        if is_call(anchor, aten.pow.Tensor_Scalar):
            power = given["exponent"] == -0.5
            return cls(anchor, given["self"], (anchor,)) if power else None
        if is_call(anchor, aten.rsqrt.default):
            return cls(anchor, given["self"], (anchor,))
        for user in anchor.users:
            if is_call(user, aten.reciprocal.default):
                return cls(user, given["self"], (anchor, user))
        return cls(anchor, given["self"], (anchor,), divides=True)


@dataclass(frozen=True)
class _Statistics:
    """`mean(wide²) + eps` over the last axis."""

    wide: fx.Node  # float32
    eps: float
    inside: tuple[fx.Node, ...]

    @classmethod
    def of(cls, root: _Root, around: Surroundings) -> _Statistics | None:
        terms = operands(root.radicand, aten.add.Tensor, aten.add.Scalar)
        if terms is None:
            return None
        mean, eps = terms if is_call(terms[0], aten.mean.dim) else terms[::-1]
        if not is_call(mean, aten.mean.dim):
            return None
        given = arguments(mean)
        base = _base_of_square(given["self"])
        if base is None:
            return None
        if not is_number(eps):
            raise Mismatch("the summand of the mean square is not a constant")
        axes = given["dim"] or []
        if len(axes) != 1 or not last_axis(axes[0], base):
            raise Mismatch(f"the mean is over axes {list(axes)} of {rank_of(base)}, not the last")
        if not given["keepdim"]:
            raise Mismatch("the mean drops its axis")
        if dtype_of(mean) != torch.float32 or dtype_of(base) != torch.float32:
            raise Mismatch(f"the mean square is taken in {dtype_of(base)}, not in float32")
        return cls(base, float(eps), (given["self"], mean, root.radicand))


def _base_of_square(node: Any) -> fx.Node | None:
    if is_call(node, aten.pow.Tensor_Scalar) and arguments(node)["exponent"] == 2:
        return _tensor(arguments(node)["self"])
    factors = operands(node, aten.mul.Tensor)
    if factors is not None and unwidened(factors[0]) is unwidened(factors[1]):
        return _tensor(factors[0])
    return None


def _tensor(node: Any) -> fx.Node | None:
    return node if is_tensor(node) else None


def _normed(root: _Root, statistics: _Statistics, around: Surroundings) -> fx.Node:
    """Return the quotient; its numerator must be the tensor of the mean square."""
    user = around.only_user(root.node)
    if user is None:
        readers = [f"%{reader.name}" for reader in around.users(root.node)]
        raise Mismatch(f"the inverse root is read by {', '.join(readers) or 'nobody'}")

    def is_root(node: Any) -> bool:
        return node is root.node

    if root.divides:
        quotient = operands(user, aten.div.Tensor)
        factors = quotient[::-1] if quotient and is_root(quotient[1]) else None
    else:
        factors = product_with(user, is_root)
    if factors is None:
        raise Mismatch(f"the inverse root goes into %{user.name}, which is not a product with it")
    if unwidened(factors[1]) is not unwidened(statistics.wide):
        raise Mismatch(f"%{user.name} scales another tensor than that of the mean square")
    if dtype_of(user) != torch.float32:
        raise Mismatch(f"the quotient is {dtype_of(user)} before it is rounded, not float32")
    return user


def _scaled(
    normed: fx.Node, statistics: _Statistics, inside: list[fx.Node], around: Surroundings
) -> Match:
    """Return the longest chain of casts and scale after the quotient that the composite covers."""
    wide = statistics.wide
    narrow = wide if dtype_of(unwidened(wide)) == torch.float32 else unwidened(wide)

    def found(output: fx.Node, passed: list[fx.Node], input: fx.Node, scale: Any) -> Match:
        return Match(output, [*inside, *passed], _writer(input, scale, statistics.eps))

    after = around.only_user(normed)
    if narrow is not wide and _is_cast_to(after, narrow):
        rounded = after
        product, scale = _times_weight(rounded, narrow, around)
        if product is None or dtype_of(scale) != dtype_of(narrow):
            return found(rounded, [normed], narrow, None)
        return found(product, [normed, rounded], narrow, scale)
    product, scale = _times_weight(normed, wide, around)
    if product is None:
        return found(normed, [], wide, None)
    rounded = around.only_user(product)
    if narrow is not wide and _is_cast_to(rounded, narrow):
        return found(rounded, [normed, product], narrow, (scale, torch.float32))
    return found(product, [normed], wide, (scale, torch.float32))


def _is_cast_to(node: Any, like: fx.Node) -> bool:
    return cast_from(node) is not None and dtype_of(node) == dtype_of(like)


def _times_weight(node: fx.Node, input: fx.Node, around: Surroundings) -> tuple[Any, Any]:
    """Return the only reader if it multiplies by a scale per feature, or per head and feature."""
    user = around.only_user(node)
    factors = product_with(user, lambda factor: factor is node)
    if user is None or factors is None or not is_tensor(factors[1]):
        return None, None
    scale = factors[1]
    *lead, width = shape_of(scale) or (0,)
    if width != shape_of(input)[-1] or rank_of(scale) > rank_of(input):
        return None, None
    per_head = len(lead) == 2 and lead[1] == 1
    if lead and (through(scale) not in around.weights or not (per_head or set(lead) == {1})):
        return None, None
    return user, scale


def _writer(input: fx.Node, scale: Any, eps: float) -> Callable[[Writer], fx.Node]:
    def write(writer: Writer) -> fx.Node:
        if scale is None:
            ones = writer.filled(input, [writer.size(input, rank_of(input) - 1)], 1.0)
            return writer.call(composites.rms_norm, input, ones, eps)
        given = writer.cast(*scale) if isinstance(scale, tuple) else scale
        return writer.call(composites.rms_norm, input, given, eps)

    return write
