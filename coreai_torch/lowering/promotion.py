"""Type promotion of operands, declared per lowering."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum, auto
from typing import Any

import torch
import torch.fx as fx
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from ..ir import types
from ..ir.build import Build
from ..ir.casting import in_dtype
from ..ir.dialect import Value, constant
from ..ir.shapes import number
from ..torch_compat import ELEMENTWISE_TYPE_PROMOTION_KIND, aten, elementwise_dtypes
from .binding import Signature, as_value


class Promote(Enum):
    """How `Value` arguments are cast before the lowering gets them."""

    NOT = auto()  # unchanged
    COMMON = auto()  # to the dtype torch computes in; the result is cast to the dtype of the node
    RESULT = auto()  # to the result dtype of the node, for true division and `sin` of integers
    WIDE = auto()  # the same, but float32 for narrower floats: torch rounds once, at the end
    BOOL = auto()  # to booleans, for logical ops


def operands(signature: Signature, arguments: Sequence[Any]) -> list[Any]:
    """Return the promoting arguments of the exported graph: fake tensors and numbers."""
    return [
        given.meta["val"] if isinstance(given, fx.Node) else given
        for param, given in zip(signature.params, arguments, strict=True)
        if param.promotes and given is not None
    ]


def common_dtype(known: Sequence[Any]) -> torch.dtype:
    """Return the dtype in which torch combines these tensors and numbers."""
    if len(known) == 2:
        return torch.result_type(*known)
    if len(known) == 1 and isinstance(known[0], torch.Tensor):
        return known[0].dtype
    _, result = elementwise_dtypes(
        *known, type_promotion_kind=ELEMENTWISE_TYPE_PROMOTION_KIND.DEFAULT
    )
    return result


def compute_dtype(
    kind: Promote, signature: Signature, node: fx.Node, arguments: Sequence[Any]
) -> torch.dtype:
    """Return the dtype that the operands of a node are cast to."""
    if kind is Promote.BOOL:
        return torch.bool
    result = _result_dtype(node)
    if kind is Promote.WIDE:
        return torch.float32 if result.is_floating_point and result.itemsize < 4 else result
    known = operands(signature, arguments)
    dtype = result if kind is Promote.RESULT else common_dtype(known)
    if dtype == result and dtype in (torch.float16, torch.bfloat16):
        numbers = [n for n in known if isinstance(n, int | float)]
        least = 0.0 if node.target in _ADDITIVE else torch.finfo(dtype).tiny
        return dtype if all(_fits(n, dtype, least) for n in numbers) else torch.float32
    return dtype


def _result_dtype(node: fx.Node) -> torch.dtype:
    promised = node.meta["val"]
    first: torch.Tensor = promised[0] if isinstance(promised, list | tuple) else promised
    return first.dtype


# A sum with a number of few digits is right: the eps of `x + 1e-8` is less than a unit of a sum.
_ADDITIVE = frozenset(
    (aten.add.Tensor, aten.add.Scalar, aten.sub.Tensor, aten.sub.Scalar, aten.rsub.Scalar)
)


def _fits(number: float, dtype: torch.dtype, least: float) -> bool:
    """Whether a half dtype keeps the digits: 1e5 would be infinite in float16, and 1e-6 off by 1 %.

    Torch computes `x * 1e5` in float32 and rounds the product. The lowest float32, which masks
    use, would be -inf in bfloat16, and its product with 0 NaN.
    """
    largest = torch.finfo(dtype).max
    return not math.isfinite(number) or number == 0 or least <= abs(number) <= largest


def promoted(
    kind: Promote, signature: Signature, node: fx.Node, bound: dict[str, Any]
) -> dict[str, Any]:
    """Return the bound arguments, with every promoting one cast."""
    arguments = signature.given(node)
    dtype = None if kind is Promote.NOT else compute_dtype(kind, signature, node, arguments)
    cast_arguments = {
        p.into: as_value(_computed(given, bound[p.into]))
        if dtype is None
        else _in(dtype, _computed(given, bound[p.into]), node)
        for p, given in zip(signature.params, arguments, strict=True)
        if p.into and p.promotes and bound[p.into] is not None
    }
    return {**bound, **cast_arguments}


def _computed(given: Any, stored: Any) -> Any:
    """Return the value of an argument for computing; `number` explains why a size differs."""
    known = given.meta.get("val") if isinstance(given, fx.Node) else given
    size = isinstance(known, torch.SymInt) and not free_unbacked_symbols(known)
    return number(stored) if size and isinstance(stored, Value) else stored


# Ops that combine a number with a tensor at once. Looking for ops on the number alone would take a
# tenth of the time of a conversion.
_COMBINING = frozenset(
    (aten.add.Tensor, aten.sub.Tensor, aten.mul.Tensor, aten.div.Tensor, aten.rsub.Scalar)
)


def _in(dtype: torch.dtype, operand: Any, node: fx.Node) -> Value:
    """Return an operand in a dtype; a number is converted once, so that 0.1 is rounded once."""
    if isinstance(operand, Value):
        return in_dtype(operand, dtype)
    small = dtype.itemsize < 4 and not dtype.is_floating_point
    if small:  # torch wraps: 250 + 10 in uint8 is 4, and -1 there is 255
        operand = torch.tensor(operand).to(dtype).item()
    if node.target in _COMBINING:
        return Build.current().number(operand, types.narrow(dtype))
    return constant(operand, dtype)
