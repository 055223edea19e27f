"""The element type that two operands are promoted to."""

from __future__ import annotations

from typing import Any

import torch

from ..ir import types


def get_promoted_type(type1: Any, type2: Any) -> Any:
    """Return the element type that torch promotes two tensor types, or element types, to."""
    first, second = (types.dtype_of(one) for one in (type1, type2))
    return types.element(torch.promote_types(first, second))
