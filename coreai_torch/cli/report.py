"""`coreai-torch report`: write an HTML page about an asset."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from .console import Inputs, Json, Size, answer, check_function, counted, size

if TYPE_CHECKING:
    from ..verification import Verdict

HELP = """Write an HTML page about an asset: inputs, outputs, graph, weights, hazards.

\b
  coreai-torch report net.aimodel -o net.html
  coreai-torch report net.aimodel -o net.html --profile
  coreai-torch report net.aimodel -o net.html --source models.py:net -i "x=f32[1,3,224,224]"

With --source the page compares the numbers with PyTorch, with --profile it shows timings. It is
one file without external resources. Exits with code 1 if the numbers differ; the page is written
anyway. Ops name their source lines if the asset was converted with --debug; --code also includes
the text of these lines.
"""


def report(
    asset: Annotated[Path, typer.Argument(help="An .aimodel.", show_default=False)],
    output: Annotated[Path, typer.Option("--output", "-o", help="The .html to write.")],
    source: Annotated[
        str | None,
        typer.Option(help="The model to verify against: a .pt2, or package.module:factory."),
    ] = None,
    inputs: Inputs = None,
    profile: Annotated[bool, typer.Option("--profile", help="Time modules and ops.")] = False,
    runs: Annotated[int, typer.Option(min=1, help="Calls to time.")] = 20,
    length: Size = None,
    function: Annotated[str, typer.Option(help="The function to verify and time.")] = "main",
    code: Annotated[
        bool, typer.Option("--code", help="Include source lines from this machine.")
    ] = False,
    as_json: Json = False,
) -> None:
    """Write the page."""
    from ..asset.port_sizes import parse_sizes
    from ..progress import stages
    from ..report import summarize, write_page
    from .profiling import profiled

    if inputs and source is None:
        raise typer.BadParameter("--input needs the model to verify against: pass --source too")
    contents = summarize(asset)
    if function != "main" or source is not None or profile:
        check_function(asset, [f.name for f in contents.functions], function)
    with stages() as stage:
        verdict = timing = None
        if source is not None:
            with stage("verifying"):
                verdict = _verified(asset, source, inputs or [], function)
        if profile:
            with stage("profiling"):
                timing = profiled(asset, function, runs, parse_sizes(length or ()))
    written = write_page(output, asset, verdict=verdict, timing=timing, code=code)
    ops, page_bytes = sum(f.ops for f in contents.functions), written.stat().st_size
    checked = None if verdict is None else verdict.ok
    outcome = {
        None: "numbers not checked",
        True: "numbers equal PyTorch's",
        False: "numbers differ",
    }
    data = {
        "output": written,
        "bytes": page_bytes,
        "ops": ops,
        "verified": checked,
        "median_ms": None if timing is None else timing.median_ms,
    }
    line = f"{written}: {counted(ops, 'op')}, a page of {size(page_bytes)}, {outcome[checked]}"
    answer(data, line, as_json=as_json, ok=checked is not False)


def _verified(asset: Path, source: str, inputs: list[str], function: str) -> Verdict:
    from ..verification import verify
    from .model_source import load

    loaded = load(source, inputs)
    return verify(
        loaded.model_or_exported,
        asset,
        entrypoint_name=function,
        **loaded.arguments(),
    )
