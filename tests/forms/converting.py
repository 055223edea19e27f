"""Convert batches of cases without running them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [p for p in (str(_TESTS), str(_TESTS / "ops")) if p not in sys.path]

import batches  # noqa: E402
import case_runner  # noqa: E402
import torch  # noqa: E402

from .batched import forms  # noqa: E402

Member = tuple[Any, Any]  # an entry of the registry and one of its cases


def name(member: Member) -> str:
    """Return the name of a case: `flip-0`."""
    return str(batches.NAMES[tuple(map(id, member))])


def static_batches() -> dict[str, list[Member]]:
    """Return all batches of cases with static sizes, by name."""
    found: dict[str, list[Member]] = {}
    for param in batches.GROUPED:
        entry, case, sizes, batch = param.values
        if sizes == "static":
            found.setdefault(batch, []).append((entry, case))
    return found


def converted(members: Sequence[Member]) -> dict[str, str]:
    """Return the form of each case by name; a batch that cannot be converted is split."""
    models = [case_runner.CaseModel(entry.target, case) for entry, case in members]
    model = batches.Combined(models) if len(models) > 1 else models[0]
    try:
        _, program = case_runner.convert(model, dynamic=False)
    except Exception:
        if len(members) == 1:
            raise
        middle = len(members) // 2
        return {**converted(members[:middle]), **converted(members[middle:])}
    program.optimize()
    return of_batch(program, members, models)


def of_batch(program: Any, members: Sequence[Member], models: Sequence[Any]) -> dict[str, str]:
    """Return the form of each case of a converted batch by name."""
    with torch.no_grad():
        counts = [len(case_runner.listed(model(*model.feeds))) for model in models]
    return dict(zip(map(name, members), forms(program, counts), strict=True))
