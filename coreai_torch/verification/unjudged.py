"""Say why an output is not judged: which op loses the precision, and what to do."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
import torch.fx as fx

from ..errors import module_path, source_line, target_name
from ..ir.types import narrow
from ..numerics.bisect import ancestors
from ..numerics.compare import Allowed, largest
from ..numerics.error_analysis import Analysis, Lanes
from ..numerics.judged import may_be_lost
from ..numerics.one_op import allowed_of
from ..numerics.output_error import OutputError
from ..numerics.rounding import overload

_OTHERWISE = (
    "compute this part in a smaller range, or pass its result as an input; with "
    'verify="accept-unjudged" the program is accepted as it is'
)
_HOST = "keep this float64 computation on the host, and pass its result as an input"
_OFFSET = (
    "subtract a start time or another offset on the host, in float64, and pass the difference as "
    "an input"
)
_PHASE = (
    "reduce the phase modulo 1 before it grows, on the host in float64 or after each step, and "
    "multiply it by 2π afterwards"
)
_ADVICE = {
    **dict.fromkeys(("sub", "rsub", "add", "diff"), _OFFSET),
    **dict.fromkeys(("sin", "cos", "tan", "remainder", "fmod", "frac", "sinc", "polar"), _PHASE),
}


@dataclass(frozen=True)
class Unjudged:
    """An output or state whose limit is too wide to compare it, and the op that makes it wide."""

    name: str
    inputs: str  # the inputs that showed it
    limit: float  # the widest limit
    scale: float  # the largest value
    narrowed: bool  # the model computes in 64 bits what the program computes in 32
    op: str = ""
    node: str = ""
    module: str = ""
    source_line: str = ""
    advice: str = _HOST

    def __str__(self) -> str:
        """Return what is not judged, where the precision is lost, and what to do."""
        why = (
            "the model computes in 64 bits, the program in 32"
            if self.narrowed
            else "torch is nearer to the result in float64 than the program"
        )
        lines = [
            f"{self.name} is not judged: rounding errors may reach {self.limit:.3g}, its largest "
            f"value is {self.scale:.3g} (inputs {self.inputs}); {why}"
        ]
        if self.op:
            inside = f" in module {self.module!r}" if self.module else ""
            lines.append(f"  at    {self.op} (%{self.node}){inside} loses the precision")
            lines += [f"        {self.source_line}"] if self.source_line else []
        return "\n".join([*lines, f"  try   {self.advice}"])


def explained(
    error: OutputError,
    want: torch.Tensor,
    allowed: Allowed,
    *,
    inputs: str,
    narrowed: bool,
    losing: fx.Node | None,
) -> Unjudged:
    """Return what is known about an output that is not judged; `losing` is the op at fault."""
    floats = want.is_floating_point() or want.is_complex()
    most = float(allowed.error.max()) if floats else 1.0
    known = Unjudged(error.name, inputs, most, largest(want), narrowed, advice=_OTHERWISE)
    if losing is not None:
        name, _ = overload(losing.target)
        known = replace(
            known,
            op=target_name(losing.target),
            node=losing.name,
            module=module_path(losing),
            source_line=source_line(losing),
        )
        known = replace(known, advice=_ADVICE.get(name, known.advice))
    return replace(known, advice=_HOST) if narrowed and known.advice == _OTHERWISE else known


def losing_op(
    module: fx.GraphModule,
    feed: Mapping[fx.Node, Any],
    result: fx.Node,
    *,
    share: float,
    device: str = "cpu",
) -> fx.Node | None:
    """Return the first op whose limits exceed a share of its result, of those `result` needs."""
    needed = ancestors([result], lambda node: list(node.all_input_nodes))
    calls = [n for n in module.graph.nodes if n in needed and n.op == "call_function"]

    def loses(node: fx.Node, lanes: Lanes) -> bool:
        if not isinstance(lanes.base, torch.Tensor) or not lanes.base.numel():
            return False
        want = lanes.base.to(narrow(lanes.base.dtype)).cpu()
        return may_be_lost(want, allowed_of(lanes, want), share)

    found = Analysis(module, device=device).run(feed, calls, loses)
    losing = next((node for node in calls if found[node]), None)
    if losing is not None and losing.target is operator.getitem:
        return losing.all_input_nodes[0]
    return losing
