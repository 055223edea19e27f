"""Ask `verify` about one program, with the interpreter in this process as its engine.

The native runtime would take seconds for each of thousands of mutants, and a child process would
optimize and save each. Both variants of a program, before and after `optimize()`, are therefore the
program before it.
"""

from __future__ import annotations

from typing import Any

from coreai_torch import to_torch
from coreai_torch.verification import Settings, Subject, TrialPlan, Verdict, engines, examine

ENGINE = "the interpreter on torch, before optimize()"
_CURRENT: dict[str, Any] = {}


class InProcess(engines.RunByTorch):
    """The program that is judged now, interpreted in this process."""

    def __init__(self, source: Any, *, entrypoint: str = "main", **options: Any) -> None:
        self._function = _CURRENT["module"].function(entrypoint)
        self.ports = engines.Ports(
            list(self._function.inputs), list(self._function.outputs), list(self._function.states)
        )


def use_interpreter() -> None:
    """Replace the engine of `verify` in this process."""
    engines.RunByTorch = InProcess  # type: ignore[misc]


def judge(subject: Subject, program: Any, leaves: list[Any], seconds: float = 60.0) -> Verdict:
    """Return the verdict on a program."""
    _CURRENT["module"] = to_torch(program)
    options = Settings(
        engine=engines.Engine.TORCH, trials=TrialPlan(), locate=False, seconds=seconds
    )
    return examine(subject, program, leaves, options)
