"""Match the ports of a program with torch's: by name, by position, and by values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from ..capture.io_plan import IOPlan
from ..numerics.compare import Allowed, compare
from .isolation import Ports


@dataclass(frozen=True)
class Pairing:
    """The program's port names in torch's order, and the problems with them."""

    inputs: list[str]
    outputs: list[str]
    states: list[str]
    problems: tuple[str, ...]

    @property
    def complete(self) -> bool:
        """Whether every value of torch has a port."""
        return not any("but torch" in problem for problem in self.problems)


def paired(found: Ports, plan: IOPlan, *, named: bool) -> Pairing:
    """Pair by name if the names are torch's, else by position.

    With `named` the caller requested the names of the plan, so other names are problems.
    """
    problems: list[str] = []
    lists = [
        _paired(what, has, [port.name for port in wants], named, problems)
        for what, has, wants in (
            ("inputs", found.inputs, plan.inputs),
            ("outputs", found.outputs, plan.outputs),
            ("states", found.states, plan.states),
        )
    ]
    return Pairing(lists[0], lists[1], lists[2], tuple(problems))


def _paired(
    what: str, has: Sequence[str], wants: Sequence[str], named: bool, problems: list[str]
) -> list[str]:
    if len(has) != len(wants):
        problems.append(f"the program has the {what} {list(has)}, but torch has {list(wants)}")
    elif list(has) == list(wants):
        pass
    elif sorted(has) == sorted(wants):
        problems.append(f"the {what} are in the order {list(has)}; torch's is {list(wants)}")
        return list(wants)
    elif named:
        problems.append(f"the {what} are called {list(has)}, not {list(wants)}")
    return list(has)


def swapped(
    got: Mapping[str, torch.Tensor],
    want: Mapping[str, torch.Tensor],
    allowed: Mapping[str, Allowed],
) -> list[str]:
    """Describe outputs whose values torch returns under another name."""
    wrong = [n for n in want if not compare(n, got[n], want[n], allowed[n]).ok]
    found = []
    for name in wrong:
        others = [o for o in wrong if o != name]
        holds = [o for o in others if compare(o, got[name], want[o], allowed[o]).ok]
        if holds:
            found.append(f"the output {name!r} holds what torch returns as {holds[0]!r}")
    return found
