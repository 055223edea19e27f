"""What a lowering may assume about dynamic sizes: whether they can be zero at run time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from . import types


@dataclass(frozen=True)
class ZeroSizes:
    """An assumption about the dynamic sizes of the values that a lowering builds.

    The runtime fails on empty operands in many ops (`docs/adr/0013`), and a guard against them
    costs ops. The exported graph knows the range of each size; the dialect's types do not. So the
    walker enters the assumption for each node, `with build.assume(POSSIBLE)`, and the
    functions of `ir` ask it about a value: `build.zero_sizes.of(x)`.

    It holds for all dynamic sizes of a node alike: a lowering may derive `n - 2` from a size `n`
    that is never zero.
    """

    possible: bool

    def of(self, x: Any) -> bool:
        """Whether a value may have no elements at run time."""
        return self.along(x, range(x.type.rank))

    def along(self, x: Any, axes: Sequence[int]) -> bool:
        """Whether one of these axes of a value may have the size zero at run time."""
        return self.possible and any(x.type.shape[axis] in _MAY_BE_ZERO for axis in axes)


_MAY_BE_ZERO = (types.DYNAMIC, 0)

NEVER = ZeroSizes(possible=False)
POSSIBLE = ZeroSizes(possible=True)
