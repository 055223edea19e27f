"""`split`: convert a model into a chain of assets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import torch
from coreai.authoring import AIProgram
from torch import fx

from ..api.capturing import EntryPoint, capture
from ..api.options import NamedKeywords, Options
from ..api.request import Request
from ..api.sizes import Variant
from ..asset.metadata import check_metadata
from ..asset.replacing import check_replaceable, replacing
from ..asset.summary import file_bytes
from ..capture.feeding import feed
from ..capture.io_plan import Names, plan
from ..capture.prepare import Captured, Source
from ..converter import TorchConverter, check_converter
from ..errors import ArgumentTypeError, ConversionError, module_path
from ..fx.liveness import live_nodes
from ..ports import Ports
from ..precision import Precision
from ..progress import Stages, stages
from ..targets import Target
from ..verification import Mode, Settings, Subject, check_mode, examine
from .cut_points import Steps, choose
from .manifest import MANIFEST, SPLIT, Manifest, PartFile
from .partition import Part, Partition


def split(
    model_or_exported: Source,
    args: Sequence[Any] | None = None,
    kwargs: Mapping[str, Any] | None = None,
    *,
    output: Path | str,
    parts: int | None = None,
    max_bytes: int | None = None,
    verify: bool | str = True,
    converter: TorchConverter | None = None,
    dynamic_shapes: Any = None,
    ports: Ports | None = None,
    precision: Precision | str | None = None,
    target: Target | str | None = None,
    metadata: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    **keywords: Unpack[NamedKeywords],
) -> Manifest:
    """Convert a model into a chain of assets that run one after the other with the same result.

    The cuts divide the weights into parts of nearly equal size, at places that few tensors cross.
    A weight that several parts use is stored in each. A state stays in one part. The folder gets
    one `.aimodel` for each part and `manifest.json`, which `load_parts` reads. The last bit may
    differ from one asset only where the compiler combines ops across a cut, as added constants.

    ```python
    layers = torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4)
    model, x = torch.nn.Sequential(*layers).eval(), torch.randn(2, 8)
    coreai_torch.split(model, (x,), parts=2, output_names=["y"], output="net-parts")
    with coreai_torch.load_parts("net-parts") as net:
        y = net(x)["y"]
    ```

    Args:
        model_or_exported: a model, or an `ExportedProgram`; an asset cannot be split.
        args: positional example inputs, as for `convert`.
        kwargs: example inputs by name.
        output: the folder to write; it replaces a folder of an earlier split.
        parts: the number of parts.
        max_bytes: instead of `parts`, the most bytes of weights in a part.
        verify: compare each part with torch, as in `convert`.
        converter: provides lowerings, kernels and a mode, as for `convert`.
        dynamic_shapes: as for `convert`, like the next four.
        ports: names of inputs, outputs and states, image inputs, other outputs, labels.
        precision: the half precision to compute in.
        target: the compute unit to emit for.
        metadata: entries of each asset.
        overwrite: delete whatever is at `output`.
        keywords: the fields of `Ports`, `Precision` and `Target`, instead of these objects.
    """
    _check(model_or_exported, parts, max_bytes)
    check_converter(converter)
    options = Options.of(ports, precision, target, keywords, "split")
    described = check_metadata(metadata)
    folder = Path(output)
    _check_folder(folder, overwrite)
    mode = None if verify is False else check_mode("quick" if verify is True else verify)
    staging = TorchConverter() if converter is None else converter.empty()
    staging = staging.for_target(options.target)
    with stages() as stage:
        given = options.ports.model_inputs(model_or_exported, args, kwargs)
        request = Request(model_or_exported, *given, dynamic_shapes, options.ports)
        (whole,) = capture([Variant("main", request)], staging, options.precision, None, stage)
        captured = whole.captured
        made = divide(captured, whole.leaves(), parts=parts, max_bytes=max_bytes)
        with replacing(folder, SPLIT, overwrite=overwrite) as scratch:
            scratch.mkdir()
            files = [
                _convert_part(part, index, scratch, staging, mode, stage, whole, described)
                for index, part in enumerate(made)
            ]
            manifest = _manifest(captured, files, made)
            manifest.write(scratch / MANIFEST)
    return manifest


def divide(
    captured: Captured,
    leaves: Sequence[Any],
    *,
    parts: int | None = None,
    max_bytes: int | None = None,
) -> list[Part]:
    """Return the programs of the parts; torch checks that the chain computes the same."""
    program, ports = captured.program, captured.plan
    steps = Steps.of(program.graph, ports, live_nodes(program.graph))
    cuts = choose(steps, ports, parts=parts, max_bytes=max_bytes)
    partition = Partition(program, ports, steps, cuts)
    values = _values(program, leaves)
    made = partition.parts(values)
    _check_chain(made, {node.name: value for node, value in values.items()})
    return made


def _check(source: Any, parts: int | None, max_bytes: int | None) -> None:
    if isinstance(source, AIProgram | str | Path):
        raise ArgumentTypeError(
            "a converted program or an asset cannot be split: its weights are part of the code\n"
            "  try   pass the model and its args, or an ExportedProgram"
        )
    if parts is not None and max_bytes is not None:
        raise ConversionError("split takes parts or max_bytes, not both\n  try   pass one of them")
    if parts is None and max_bytes is None:
        raise ConversionError("split needs parts or max_bytes\n  try   pass parts=2")
    wanted = parts if parts is not None else max_bytes
    if not isinstance(wanted, int) or isinstance(wanted, bool) or wanted < 1:
        name = "parts" if parts is not None else "max_bytes"
        raise ConversionError(f"{name} is {wanted!r}\n  try   pass a number of at least 1")


def _check_folder(folder: Path, overwrite: bool) -> None:
    """Raise if the parts cannot be written there, before any work is done."""
    if folder.suffix == ".aimodel":
        raise ConversionError(
            f"the parts are a folder of several assets, not {str(folder)!r}\n"
            f"  try   pass {str(folder.with_suffix(''))!r}"
        )
    check_replaceable(folder, SPLIT, overwrite=overwrite)


class _Recorder(fx.Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    """Runs a graph and keeps the value of each node."""

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        self.values[n] = value.clone() if isinstance(value, torch.Tensor) else value
        return value


def _values(program: torch.export.ExportedProgram, leaves: Sequence[Any]) -> dict[fx.Node, Any]:
    recorder = _Recorder(program.graph_module)
    found: dict[fx.Node, Any] = {}
    recorder.values = found
    with torch.no_grad():
        recorder.run(*feed(program, leaves), enable_io_processing=False)
    return found


def _check_chain(parts: Sequence[Part], expected: Mapping[str, Any]) -> None:
    """Raise if a part does not compute in torch what the program computes."""
    for index, part in enumerate(parts):
        examples = part.program.example_inputs
        for node, value in _values(part.program, examples[0] if examples else ()).items():
            want = expected.get(node.name)
            both = isinstance(value, torch.Tensor) and isinstance(want, torch.Tensor)
            if both and node.op == "call_function" and not _is_same(value, want):
                raise ConversionError(
                    f"part {index + 1} differs from the model at %{node.name}\n"
                    "  try   pass another number of parts, and report this with the model"
                )


def _is_same(value: torch.Tensor, want: torch.Tensor) -> bool:
    """Return whether all elements are equal; NaN equals NaN."""
    if value.shape != want.shape or value.dtype != want.dtype:
        return False
    return bool(((value == want) | (value.isnan() & want.isnan())).all())


def _convert_part(
    part: Part,
    index: int,
    folder: Path,
    staging: TorchConverter,
    mode: Mode | None,
    stage: Stages,
    whole: EntryPoint,
    metadata: Mapping[str, Any],
) -> PartFile:
    converter, names = staging.empty(), part.names
    converter.add_exported_program(part.program, names.inputs, names.outputs, names.states)
    with stage("converting", ops=len(part.program.graph.nodes), live=False):
        program = converter.to_coreai()
    if mode is not None:
        ends = plan(part.program, names)
        subject = Subject(part.program, ends, part.program.module())
        with stage("verifying"):
            settings = Settings(named=True, converter=converter, mode=mode)
            examine(subject, program, subject.leaves(None, None), settings).raise_if_failed()
    program.metadata |= {**metadata, "part": str(index + 1)}
    whole.request.ports.describe(whole.captured, program)
    program.optimize()
    file = f"part-{index + 1}.aimodel"
    program.save_asset(folder / file)
    return PartFile(
        file,
        tuple(names.inputs or ()),
        tuple(names.outputs or ()),
        tuple(names.states or ()),
        part.weight_bytes,
        file_bytes(folder / file) or 0,
        module_path(part.first),
    )


def _manifest(captured: Captured, files: Sequence[PartFile], parts: Sequence[Part]) -> Manifest:
    ports = captured.plan
    stored = Counter(name for part in parts for name in _weights(part))
    shared = sorted(name for name, count in stored.items() if count > 1)
    return Manifest(
        tuple(port.name for port in ports.inputs),
        tuple(port.name for port in ports.outputs),
        tuple(port.name for port in ports.states),
        tuple(files),
        tuple(shared),
    )


def _weights(part: Part) -> list[str]:
    ports = plan(part.program, Names())
    return [path for path, value in ports.constants.values() if value.numel()]
