"""`coreai-torch convert`: convert a model to an .aimodel and check its numbers."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated, Any

import typer

from .console import (
    Checkpoint,
    DType,
    Exact,
    Force,
    Inputs,
    Json,
    Source,
    Target,
    Verify,
    answer,
    check_asset_path,
    counted,
    size,
)
from .conversion_options import Calibration, HalfPorts, Keep, Precision, half_options, parse_sizes
from .ports import Assume, BoolPorts, Images, Labels, Outputs, Random, port_options

if TYPE_CHECKING:
    from ..asset.program import Program

HELP = """Export, decompose, convert, check the numbers, optimize and save.

\b
  coreai-torch convert model.pt2 -o model.aimodel
  coreai-torch convert models.py:net -i "x=f32[1,3,224,224]" -o net.aimodel
  coreai-torch convert models.py:net -i "x=f32[batch:2:1..64,10]" -o net.aimodel
  coreai-torch convert pkg.bert:small -i "ids=i64[1,16]<30522" --output-names states -o b.aimodel
  coreai-torch convert models.py:net -i "x=f32[1,8]" --checkpoint best.pt --dtype f16 -o n.aimodel
  coreai-torch convert models.py:net -i "x=f32[1,8]" --target gpu --no-rewrite HAZ13 -o n.aimodel
  coreai-torch convert transformers:bert-base/ --metadata license=MIT -o bert.aimodel
  coreai-torch convert models.py:net -i "x=f32[1,3,224,224]" -o net.aimodel \\
    --image "x color=BGR mean=0.485,0.456,0.406 std=0.229,0.224,0.225" --labels classes.txt
  coreai-torch convert models.py:net -i "x=f32[1,3,224,224]" --outputs layer3 -o net.aimodel
  coreai-torch convert models.py:net -i "x=f32[1,8]" -o net.aimodel \\
    --externalize "models.py:Norm=rms_norm(axes,eps)"

Nothing is saved if the numbers differ from PyTorch; --verify none skips the check. --externalize
keeps every instance of a class as a separate graph: package.module:Class or file.py:Class is a
plain boundary, package.module:Class=name(attribute,...) a composite op.
"""
Metadata = Annotated[
    list[str] | None,
    typer.Option(
        help="key=value: author, license, model_description, or any key; can be repeated."
    ),
]


def convert(
    source: Source,
    output: Annotated[Path, typer.Option("--output", "-o", help="The .aimodel to write.")],
    inputs: Inputs = None,
    checkpoint: Checkpoint = None,
    dtype: DType = "",
    metadata: Metadata = None,
    input_names: Annotated[
        str, typer.Option(help="Names of the inputs, separated by commas.")
    ] = "",
    output_names: Annotated[
        str, typer.Option(help="Names of the outputs, separated by commas.")
    ] = "",
    state_names: Annotated[
        str, typer.Option(help="Names of the states, separated by commas.")
    ] = "",
    verify: Annotated[
        Verify, typer.Option(help="How to compare the program with PyTorch; none skips it.")
    ] = Verify.QUICK,
    no_verify: Annotated[
        bool, typer.Option("--no-verify", help="The same as --verify none.")
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Keep source lines and FX nodes in the asset.")
    ] = False,
    recognize: Annotated[
        bool, typer.Option("--recognize", help="Emit composites for norms and attention.")
    ] = False,
    externalize: Annotated[
        list[str] | None,
        typer.Option(help="A class of submodules to externalize: models.py:Norm; can be repeated."),
    ] = None,
    dump_passes: Annotated[
        Path | None, typer.Option(help="A folder for the graph after each pass.")
    ] = None,
    precision: Precision = "",
    keep: Keep = None,
    calibration: Calibration = None,
    half_ports: HalfPorts = False,
    target: Target = "",
    exact: Exact = False,
    safe: Annotated[
        bool, typer.Option("--safe/--no-safe", help="Whether --target rewrites anything.")
    ] = True,
    no_rewrite: Annotated[
        list[str] | None,
        typer.Option(help="The id of a rewrite to leave out, as HAZ11; can be repeated."),
    ] = None,
    rewrite: Annotated[
        list[str] | None,
        typer.Option(help="The id of a rewrite on request, as PLACE15; can be repeated."),
    ] = None,
    outputs: Outputs = "",
    image: Images = None,
    bool_ports: BoolPorts = "bool",
    labels: Labels = None,
    random: Random = None,
    assume: Annotated[
        Assume | None, typer.Option(help="Let the values of the example decide branches.")
    ] = None,
    sizes: Annotated[
        list[str] | None,
        typer.Option("--size", help="x=1,3,64,64: an entry point of this size; can be repeated."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Convert and check the numbers, but write nothing.")
    ] = False,
    force: Force = False,
    as_json: Json = False,
) -> None:
    """Convert and save."""
    from .. import TorchConverter
    from .. import convert as convert_model
    from .conversion_options import parse_externalized
    from .model_source import load

    skipped = no_verify or verify is Verify.NONE
    check_asset_path(output, force)
    described = parse_metadata(metadata or ())
    loaded = load(source, inputs or (), checkpoint=checkpoint, dtype=dtype)
    mode = TorchConverter.Mode.DEBUG if debug else TorchConverter.Mode.RELEASE
    converter = TorchConverter(mode, recognize=recognize, dump_passes=dump_passes)
    program = convert_model(
        loaded.model_or_exported,
        input_names=_listed(input_names),
        output_names=_listed(output_names),
        state_names=_listed(state_names),
        externalize_modules=[parse_externalized(text) for text in externalize or ()],
        verify=False if skipped else str(verify),
        **half_options(precision, keep, calibration, half_ports),
        **loaded.arguments(converter),
        target=target or None,
        exact=exact,
        safe=safe,
        skip_rewrites=no_rewrite or (),
        extra_rewrites=rewrite or (),
        metadata=described,
        **port_options(outputs, image, bool_ports, labels),
        random=random,
        assume=assume,
        sizes=parse_sizes(sizes or ()),
    )
    data, lines = _saved(program, output, dry_run=dry_run, force=force, verified=not skipped)
    if precision:
        several = isinstance(program.precision_report, list)  # one for each --size
        reports = program.precision_report if several else [program.precision_report]
        rows = [dataclasses.asdict(report) for report in reports]
        data["precision"] = rows if several else rows[0]
        lines += map(str, reports)
    answer(data, lines, as_json=as_json, ok=True)


def _saved(
    program: Program, output: Path, *, dry_run: bool, force: bool, verified: bool
) -> tuple[dict[str, Any], list[str]]:
    """Save a program, to a temporary folder if `dry_run`, and return what was saved."""
    if not dry_run:
        program.save_asset(output, overwrite=force)
        return _result(program, output, verified=verified)
    with TemporaryDirectory(prefix="coreai-torch-") as folder:
        path = program.save_asset(Path(folder) / "program.aimodel").path
        data, lines = _result(program, Path(path), verified=verified)
    data["output"], data["dry_run"] = output, True
    lines[0] = lines[0].replace(str(path), f"{output} (not written)", 1)
    return data, lines


def _result(program: Program, output: Path, *, verified: bool) -> tuple[dict[str, Any], list[str]]:
    """Return what was saved as JSON and as lines of text."""
    from ..asset.metadata import assumptions_of
    from ..report import summarize

    contents = summarize(output)
    count = sum(function.ops for function in contents.functions)
    data: dict[str, Any] = {
        "output": output,
        "bytes": contents.file_bytes,
        "ops": count,
        "verified": verified,
    }
    checked = "numbers equal PyTorch's" if verified else "numbers not checked"
    lines = [f"{output}: {counted(count, 'op')}, {size(contents.file_bytes or 0)}, {checked}"]
    if program.regions is not None:
        data["regions"] = dataclasses.asdict(program.regions)
        lines.append(str(program.regions))
    if program.rewrites:
        data["rewrites"] = [dataclasses.asdict(one) for one in program.rewrites]
        lines.append(f"{counted(len(program.rewrites), 'rewrite')} for the target:")
        lines += [f"  {one}" for one in program.rewrites]
    if assumed := assumptions_of(program.metadata):
        data["assumptions"] = assumed
        lines += [f"  assumed  {one['condition']}, at {one['line']}" for one in assumed]
    if program.port_notes:
        data["port_notes"] = program.port_notes
        lines += [f"  note  {note}" for note in program.port_notes]
    return data, lines


def parse_metadata(given: Sequence[str]) -> dict[str, str]:
    """Return the metadata that `key=value` texts give."""
    pairs = [text.partition("=") for text in given]
    for text, (key, found, _) in zip(given, pairs, strict=True):
        if not (key and found):
            raise typer.BadParameter(f"{text!r} is not metadata; try  --metadata author=Ada")
    return {key: value for key, _, value in pairs}


def _listed(given: str) -> list[str] | None:
    return [name.strip() for name in given.split(",")] if given else None
