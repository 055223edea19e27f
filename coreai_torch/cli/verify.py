"""`coreai-torch verify`: compare a program with PyTorch on the same inputs."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from .console import Checkpoint, DType, Inputs, Json, Source, answer, check_function
from .ports import Images, port_options

HELP = """Run PyTorch and the program on the same inputs; exit with code 1 if the numbers differ.

\b
  coreai-torch verify model.pt2 model.aimodel
  coreai-torch verify models.py:net net.aimodel --input "x=f32[n:2,10]" --seeds 5
  coreai-torch verify model.pt2                          (converts it now)

Inputs are the given ones, similar random ones, edge values and other sizes. Each runs before and
after optimize(); a program with state is called several times. A failure names the first wrong op.
With --mode quick, torch runs the program on generated inputs if the runtime is slow.
"""


class RunBy(StrEnum):
    """The engine that runs the program."""

    AUTO = "auto"
    RUNTIME = "runtime"
    TORCH = "torch"


class Mode(StrEnum):
    """How much is verified."""

    QUICK = "quick"
    FULL = "full"
    ACCEPT_UNJUDGED = "accept-unjudged"


def verify(
    source: Source,
    program: Annotated[
        Path | None, typer.Argument(help="The .aimodel; if omitted, the source is converted.")
    ] = None,
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    seeds: Annotated[int, typer.Option(min=0, help="Random inputs to try.")] = 2,
    sizes: Annotated[int, typer.Option(min=0, help="Other values of dynamic sizes to try.")] = 3,
    steps: Annotated[
        int, typer.Option(min=1, help="Consecutive calls of a program with state.")
    ] = 3,
    edges: Annotated[bool, typer.Option(help="Try zeros, extremes and other magnitudes.")] = True,
    tolerance: Annotated[
        float | None,
        typer.Option(min=0, help="Tolerance relative to the largest value of an output."),
    ] = None,
    function: Annotated[str, typer.Option(help="The function of the asset.")] = "main",
    engine: Annotated[RunBy, typer.Option(help="The engine that runs it.")] = RunBy.AUTO,
    device: Annotated[
        str, typer.Option(help="Where torch runs model and program instead of the runtime: cuda.")
    ] = "cpu",
    mode: Annotated[
        Mode, typer.Option(help="quick: torch runs generated inputs if the runtime is slow.")
    ] = Mode.FULL,
    seconds: Annotated[
        float | None,
        typer.Option(min=0, help="Time limit for generated inputs; 60, or 5 if quick."),
    ] = None,
    draw: Annotated[
        list[str] | None,
        typer.Option(
            help="How to draw an input that has rules, as ids=segment_ids: offsets, lengths, "
            "segment_ids, mask, probabilities, permutation, angles, sorted, fixed; repeatable."
        ),
    ] = None,
    image: Images = None,
    as_json: Json = False,
) -> None:
    """Compare the program with PyTorch."""
    from ..asset import reading
    from ..progress import stages
    from ..verification import TrialPlan
    from ..verification import verify as verify_program
    from .model_source import load

    if program is not None:
        check_function(program, reading.read(program, largest=0).functions, function)
    loaded = load(source, inputs or (), checkpoint=checkpoint, dtype=dtype)
    with stages() as stage, stage("verifying"):
        verdict = verify_program(
            loaded.model_or_exported,
            program,
            entrypoint_name=function,
            inputs=_strategies(draw or ()),
            images=port_options("", image, "bool", None)["images"],
            **loaded.arguments(),
            trials=TrialPlan(seeds, sizes, edges, steps),
            tolerance=tolerance,
            engine=engine,
            device=device,
            mode=mode,
            seconds=seconds,
        )
    answer(verdict.as_dict(), str(verdict), as_json=as_json, ok=verdict.ok)


def _strategies(texts: Sequence[str]) -> dict[str, str]:
    """Return how to draw each input, by name."""
    found = {}
    for text in texts:
        name, equals, strategy = text.partition("=")
        if not equals:
            raise typer.BadParameter(f"{text!r} names no strategy; try  --draw {text}=sorted")
        found[name] = strategy
    return found
