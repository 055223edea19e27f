"""`coreai-torch device-check`: run programs on the compute units of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Json, answer

if TYPE_CHECKING:
    from ..debugging.compute_plan import ComputePlan
    from ..device_check.cases import Case

HELP = """Run programs on each compute unit of this machine, and write one file about it.

\b
  coreai-torch device-check -o kit.json
  coreai-torch device-check --only bilinear --only PLACE13 -o kit.json
  coreai-torch device-check net.aimodel -o kit.json

The built-in programs are one for each placement rule and op family, as lowered, with the rewrites
for the neural engine and in another form, and ten models. Each is loaded for the CPU, the GPU and
the neural engine, compared with PyTorch and timed, in a child process. This needs macOS 27; where
the runtime has no units, it runs on that of coreai-core alone. `coreai-torch place --against
kit.json` turns the file into a table. Exits with code 1 if a program is wrong, fails or crashes.
"""


def device_check(
    models: Annotated[
        list[Path] | None,
        typer.Argument(help="Assets without states; the built-in programs by default."),
    ] = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .json to write.")] = Path(
        "kit.json"
    ),
    only: Annotated[
        list[str] | None,
        typer.Option(help="A rule or a part of a name of built-in programs; can be repeated."),
    ] = None,
    runs: Annotated[int, typer.Option(min=1, help="Calls to time.")] = 20,
    plans: Annotated[
        Path | None,
        typer.Option(help="A folder of compute plans: NAME.FORM.UNIT.json for each program."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check programs."""
    from ..device_check.kit import check
    from ..device_check.tables import lines, outcomes, rules

    def plan_of(name: str, unit: str) -> ComputePlan | None:
        from ..debugging.compute_plan import ComputePlan

        path = None if plans is None else plans / f"{name}.{unit}.json"
        return ComputePlan.read(path) if path is not None and path.exists() else None

    cases = [] if models and not only else _chosen(only or ())
    show = (lambda line: None) if as_json else (lambda line: typer.echo(line, err=True))
    kit = check(cases, models or (), runs=runs, plan_of=plan_of, note=show)
    kit.write(output)
    rows = outcomes(kit)
    ok = all(row["status"] == "ok" for row in rows)
    data = {"output": output, "outcomes": rows, "rules": [row.to_dict() for row in rules(kit)]}
    answer(data, [*lines(kit, rules(kit)), f"\n{output}: written"], as_json=as_json, ok=ok)


def _chosen(only: Sequence[str]) -> list[Case]:
    """Return the built-in cases that are asked for."""
    from ..device_check.cases import CASES

    found = [c for c in CASES if not only or any(o == c.code or o in c.name for o in only)]
    if not found:
        names = ", ".join(case.name for case in CASES)
        raise typer.BadParameter(f"no built-in program is called {only}; there are {names}")
    return found
