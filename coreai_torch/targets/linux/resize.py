"""Linear resizing as weighted sums of rows, one axis after the other."""

from __future__ import annotations

from functools import wraps
from typing import Any

from ...ir.dialect import Value
from ...lowering import Ctx, lowers
from ...lowering.registry import BUILTIN, Lowering, key
from ...torch_compat import aten


class _Exact(Ctx):
    """A context in which the plain form guards infinities: it gathers rows then."""

    @property
    def exact(self) -> bool:
        return True


def _gathered(op: Any) -> None:
    plain = BUILTIN.get(key(op))
    assert isinstance(plain, Lowering)

    @lowers(
        op,
        target="linux",
        reason="64 x 112 x 112 doubled takes 2,000 ms with interpolate, sums of rows 120 ms; "
        "3 x 512 x 512 to 333 x 700 takes 260 ms with products, sums of rows 30 ms",
    )
    @wraps(plain.fn)
    def resize(ctx: Ctx, **given: Any) -> Value:
        result: Value = plain.fn(_Exact(ctx.call, ctx._lower_subgraph), **given)
        return result


for _op in (aten.upsample_linear1d, aten.upsample_bilinear2d, aten.upsample_trilinear3d):
    _gathered(_op.vec)
    _gathered(_op.default)
