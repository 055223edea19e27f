"""Judge unmutated models of the zoo in several dtypes: every rejection is a false alarm."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch

from coreai_torch import TorchConverter
from coreai_torch.capture.prepare import prepare
from coreai_torch.converter import capture_rules
from coreai_torch.lowering.program import Staged, build
from coreai_torch.lowering.registry import BUILTIN
from coreai_torch.verification import Subject

from . import judging, programs
from .run import BROKEN, FALSE_ALARM, HONEST, Outcome

DTYPES = ("float32", "float16", "bfloat16")
SKIPPED = "skipped"


@dataclass(frozen=True)
class Model:
    """A model of the zoo in a dtype."""

    row: str
    dtype: str

    @property
    def name(self) -> str:
        """The name of the unit."""
        return f"{self.row}/{self.dtype}"


def models(folder: Any = programs.TESTS) -> list[Model]:
    """Return all models of the zoo that are converted by this converter, in all dtypes."""
    import zoo

    rows = [r for r in zoo.ROWS.values() if not r.refused and r.asset is None]
    return [Model(row.name, dtype) for row in rows for dtype in DTYPES]


def run(name: str) -> Outcome:
    """Convert and judge one model."""
    row, _, dtype = name.rpartition("/")
    began = time.monotonic()
    try:
        outcome, detail = _judged(row, getattr(torch, dtype))
    except ImportError as error:
        outcome, detail = SKIPPED, f"{type(error).__name__}: {error}"[:200]
    except Exception as error:
        lines = str(error).splitlines() or [""]
        outcome, detail = BROKEN, f"{type(error).__name__}: {lines[0]}"[:300]
    seconds = round(time.monotonic() - began, 2)
    return Outcome(name, row, "", 0.0, dtype, outcome, detail, seconds)


def _judged(name: str, dtype: torch.dtype) -> tuple[str, str]:
    import zoo
    from zoo import judge

    row = zoo.ROWS[name]
    torch.manual_seed(0)
    model = row.build().eval()
    judge._add_noise(model, row.gain)
    model = model.to(dtype)
    inputs = {**judge._make_inputs(row.inputs, dtype), **row.flags}
    try:
        with torch.no_grad():
            made = judge._results(model, judge._make_inputs(row.inputs, dtype), row.flags)
    except Exception as error:
        return SKIPPED, f"eager torch fails: {type(error).__name__}: {error}"[:200]
    if _floats(made) and all(bool(value.isnan().all()) for value in _floats(made)):
        return SKIPPED, "eager torch returns NaN only"
    captured = prepare(model, (), inputs, rules=capture_rules(TorchConverter()))
    staged = Staged("main", captured.program, captured.plan)
    program = build([staged], BUILTIN, debug=True, on_node=lambda: None)
    subject = Subject(captured.program, captured.plan, captured.reference)
    verdict = judging.judge(subject, program, subject.leaves((), inputs))
    return (HONEST, "") if verdict.ok else (FALSE_ALARM, str(verdict)[:800])


def _floats(results: list[Any]) -> list[torch.Tensor]:
    return [r for r in results if isinstance(r, torch.Tensor) and r.is_floating_point()]
