"""Draw random graphs, export, convert and run them, and compare them with eager."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import moves  # noqa: F401  adds its steps
import runtime
import sums  # noqa: F401  adds its steps
import torch
from choices import DTYPES, Choices
from pool import EPSILON, Pool, Value
from steps import MAKERS

import coreai_torch
from coreai_torch.errors import NotDecomposedError
from coreai_torch.ir.types import narrow

_SIZES = (1, 2, 3, 4, 5, 2, 3, 1, 0)


def drawn(number: Callable[[int, int], int], most: int = 12) -> Pool:
    """Return a graph with a limited number of steps; invalid steps are left out."""
    pool = Pool()
    choose = Choices(number, pool)
    for _ in range(number(1, 3)):
        shape = [choose.one_of(_SIZES) for _ in range(number(0, 4))]
        pool.feed(choose.tensor(shape, choose.one_of(DTYPES), special=number(0, 7) == 7))
    makers = list(MAKERS.values())
    for _ in range(number(1, most)):
        step = choose.one_of(makers)(choose)
        if step is not None:
            pool.add(step)
    return pool


class Graphs(torch.nn.Module):
    """Several graphs in one program, which halves the time of export and decomposition."""

    def __init__(self, pools: Sequence[Pool]):
        super().__init__()
        self.pools = list(pools)

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        feed = iter(inputs)
        results = []
        for pool in self.pools:
            results += pool.replayed([next(feed) for _ in range(pool.inputs)])
        return results


def differences(pools: Sequence[Pool], dynamic: bool) -> list[str]:
    """Return where a program, before or after `optimize`, differs by more than rounding."""
    pools = [pool for pool in pools if pool.ends()]
    if not pools:
        return []
    feeds = [operand.eager for pool in pools for operand in pool.values[: pool.inputs]]
    program, names = _converted(pools, feeds, dynamic)
    found = []
    for stage in ("as converted", "optimized"):
        if stage == "optimized":
            program.optimize()
        got = iter(runtime.run(program, dict(zip(names, feeds, strict=True))).values())
        for pool in pools:
            for place in pool.ends():
                difference = _difference(next(got), pool.values[place])
                if difference:
                    found.append(f"{pool}\n{stage}, v{place}: {difference}")
    return found


def _converted(pools: Sequence[Pool], feeds: list[torch.Tensor], dynamic: bool):
    vary = torch.export.Dim.AUTO if dynamic else torch.export.Dim.STATIC
    shapes = tuple(dict.fromkeys(range(t.dim()), vary) for t in feeds)
    with torch.no_grad():
        exported = torch.export.export(Graphs(pools), tuple(feeds), dynamic_shapes=(shapes,))
    try:  # a graph of lowered ops needs no decomposition, the most expensive part
        converter = coreai_torch.TorchConverter().add_exported_program(exported)
    except NotDecomposedError:
        exported = exported.run_decompositions(_table())
        converter = coreai_torch.TorchConverter().add_exported_program(exported)
    return converter.to_coreai(), exported.graph_signature.user_inputs


@functools.cache
def _table():
    return coreai_torch.get_decomp_table()


def _difference(got: torch.Tensor, operand: Value) -> str:
    want = operand.eager.to(narrow(operand.eager.dtype))
    if (got.dtype, got.shape) != (want.dtype, want.shape):
        return f"{got.dtype} {tuple(got.shape)}, not {want.dtype} {tuple(want.shape)}"
    if want.dtype not in EPSILON:
        return "" if torch.equal(got, want) else f"{got.tolist()}, not {want.tolist()}"
    finite = want.isfinite()
    if not torch.equal(got[~finite].nan_to_num(), want[~finite].nan_to_num()):
        return f"{got.tolist()}, not {want.tolist()}"
    apart = (got[finite].double() - want[finite].double()).abs().max() if finite.any() else 0.0
    if not apart <= operand.tolerance or math.isnan(apart):
        return f"{apart} apart, {operand.tolerance} allowed: {got.tolist()}, not {want.tolist()}"
    return ""
