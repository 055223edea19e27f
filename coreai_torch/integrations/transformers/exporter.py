"""`CoreAIExporter`: from a model of transformers to a Core AI program."""

from __future__ import annotations

import copy
import json
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from coreai.authoring import AIModelAsset, AIProgram
from transformers import GenerationConfig, PreTrainedModel
from transformers.exporters import auto
from transformers.exporters.base import EXPORT_MANIFEST_FILE, ExportedModel
from transformers.exporters.configs import DynamoConfig
from transformers.exporters.exporter_dynamo import DynamoExporter

from ... import TorchConverter, convert, prepare, read_metadata
from ...errors import ConversionError
from ...torch_compat import pytree
from .config import FORMAT, CoreAIConfig
from .quantizer import CoreAIQuantizer
from .runner import CoreAIModelRunner
from .structure import KEY, Recorder, Result, Structure, names_of_leaves

Export = Callable[[torch.nn.Module], torch.export.ExportedProgram]
_FILES = ("main.mlirb", "main.hash", "metadata.json")  # of an asset


class CoreAIExporter(DynamoExporter):  # type: ignore[misc]  # mypy does not follow transformers
    """Export a model of transformers to a verified Core AI program.

    ```text
    exported = CoreAIExporter().export(model, inputs, CoreAIConfig())
    exported.save_pretrained("exported")  # model.aimodel, export.json, config.json
    logits = ExportedModel.from_pretrained("exported")(**inputs).logits
    ```
    """

    export_format = FORMAT
    config_class = CoreAIConfig
    program_suffix = ".aimodel"

    required_packages = ("torch", "coreai_torch")
    tested_versions: dict[str, str] = {}  # noqa: RUF012  as in the base class

    def __init__(self) -> None:
        """Register the backend, so that the results run."""
        super().__init__()
        register()

    def export_program(
        self,
        model: torch.nn.Module,
        sample_inputs: MutableMapping[str, Any],
        config: CoreAIConfig,
    ) -> tuple[AIProgram, Any]:
        """Export, convert and verify one graph; return it with its metadata."""
        model = _compressed(model, sample_inputs, config)
        recorder = Recorder()
        found: list[Any] = []
        given: Any = super()

        def export(model: torch.nn.Module) -> torch.export.ExportedProgram:
            found[:] = given.export_program(model, sample_inputs, config=_for_dynamo(config))
            return found[0]

        converter = TorchConverter(
            recognize=config.recognize, target=config.target, exact=config.exact
        )
        with _recording(model, recorder, states=config.states):
            captured = _captured(model, export, converter)
        exported, metadata = found
        metadata.out_spec, metadata.out_constants = recorder.spec, recorder.constants
        ports = _names_of_ports(exported)
        return _converted(captured, ports, recorder.results, config, converter), metadata

    def export_for_generation(
        self,
        model: PreTrainedModel,
        sample_inputs: MutableMapping[str, Any],
        config: CoreAIConfig | dict[str, CoreAIConfig],
        *,
        generation_config: GenerationConfig | None = None,
        multi_token_decode: bool = False,
    ) -> ExportedModel:
        """Export the parts of a model; the generation config is saved with them for `generate`."""
        if isinstance(config, CoreAIConfig) and config.cache_length is not None:
            generation_config = copy.deepcopy(generation_config or model.generation_config)
            generation_config.cache_implementation = "static"
            generation_config.max_cache_len = config.cache_length
        return super().export_for_generation(
            model,
            sample_inputs,
            config,
            generation_config=generation_config,
            multi_token_decode=multi_token_decode,
        )

    @classmethod
    def save_program(cls, program: AIProgram | AIModelAsset, path: Path | str) -> None:
        """Write an asset; one that is there is replaced."""
        path = _final(Path(path))
        if isinstance(program, AIProgram):
            program.save_asset(path)
        elif Path(program.path).resolve() != path.resolve():
            if path.exists():
                read_metadata(path)  # raises for anything but an asset, which is not deleted
                shutil.rmtree(path)
            shutil.copytree(program.path, path)

    @classmethod
    def load_program(cls, path: Path | str) -> AIModelAsset:
        """Read an asset."""
        return AIModelAsset.load(Path(path))

    @classmethod
    def program_files(cls, filename: str) -> list[str]:
        """Return the files of an asset, which is a folder."""
        return [f"{filename}/{name}" for name in _FILES]


def register() -> None:
    """Register the backend `coreai`, so that the auto classes of transformers find it."""
    known = auto.EXPORT_BACKENDS.get(FORMAT)
    if known is None or known.exporter is not CoreAIExporter:
        auto.register_backend(CoreAIExporter, CoreAIModelRunner)


def _compressed(
    model: torch.nn.Module, inputs: MutableMapping[str, Any], config: CoreAIConfig
) -> torch.nn.Module:
    """Return a compressed copy of a model, or the model itself."""
    quantizer = config.quantizer
    if config.compression is not None:
        if quantizer is not None:
            raise ConversionError("compression and quantizer are given\n  try   pass one of them")
        quantizer = CoreAIQuantizer(config.compression)
    if quantizer is None or quantizer.quantizes_fx_graph:
        return model
    quantizer.validate_environment(config.export_format)
    copied: torch.nn.Module = quantizer.quantize(copy.deepcopy(model), dict(inputs), FORMAT)
    return copied


def _for_dynamo(config: CoreAIConfig) -> DynamoConfig:
    """Return the options of the export alone; quantizers of the FX graph accept its format."""
    quantizer = config.quantizer
    return DynamoConfig(
        dynamic=config.dynamic,
        strict=config.strict,
        dynamic_shapes=config.dynamic_shapes,
        prefer_deferred_runtime_asserts_over_guards=(
            config.prefer_deferred_runtime_asserts_over_guards
        ),
        quantizer=quantizer if quantizer is not None and quantizer.quantizes_fx_graph else None,
    )


@contextmanager
def _recording(model: torch.nn.Module, recorder: Recorder, *, states: bool) -> Iterator[None]:
    """Let the forward of a model return the tensors alone that are no arguments, by name."""
    original = model.forward

    def forward(**arguments: Any) -> dict[str, Any]:
        if not states:  # what the model writes is a copy, which is returned
            arguments = pytree.tree_map_only(torch.Tensor, torch.clone, arguments)
        held = pytree.tree_leaves(arguments)  # so that no id is used again
        names = zip(held, names_of_leaves(arguments), strict=True)
        known = {id(leaf): name for leaf, name in names if name and states}
        return recorder.tensors_of(original(**arguments), known)

    model.forward = forward
    try:
        yield
    finally:
        model.forward = original


def _captured(model: torch.nn.Module, export: Export, converter: TorchConverter) -> Any:
    """Export as transformers does; if torch cannot, also rewrite what reads tensor values."""
    try:
        exported = export(model)
    except ConversionError:
        raise
    except Exception as cause:
        try:
            return prepare(model, export_fn=export, converter=converter)
        except Exception:
            raise cause from None
    return prepare(exported, converter=converter)


def _converted(
    captured: Any,
    ports: Mapping[str, str],
    results: Sequence[Result],
    config: CoreAIConfig,
    converter: TorchConverter,
) -> AIProgram:
    inputs = [ports.get(port.node.name, port.name) for port in captured.plan.inputs]
    states = [ports.get(port.node.name, port.name) for port in captured.plan.states]
    results = [_beside(states, result) for result in results]
    program = convert(
        captured,
        input_names=inputs,
        output_names=[result.output for result in results if result.output],
        state_names=states,
        precision=config.precision,
        converter=converter,
        verify=config.verify,
    )
    structure = Structure(tuple(inputs), tuple(states), tuple(results))
    program.metadata[KEY] = json.dumps(structure.as_dict())
    return program


def _beside(states: Sequence[str], result: Result) -> Result:
    """Return a result with another name than the states, as a program requires."""
    if result.output not in states:
        return result
    return replace(result, output=f"output.{result.output}")


def _names_of_ports(exported: torch.export.ExportedProgram) -> dict[str, str]:
    """Return the path of each argument by the name of its placeholder."""
    _, kwargs = exported.example_inputs
    names, placeholders = names_of_leaves(kwargs), exported.graph_signature.user_inputs
    if len(names) != len(placeholders):
        raise ConversionError(
            f"the program has {len(placeholders)} inputs for {len(names)} arguments\n"
            "  try   pass inputs of types that transformers registers with torch's pytree"
        )
    return {str(p): name for p, name in zip(placeholders, names, strict=True) if name}


def _final(path: Path) -> Path:
    """Return where to write an asset for `save_pretrained`.

    It writes to a new folder and renames each file over the old one, which fails for
    folders that are not empty. An old asset is replaced in one step instead.
    """
    folder = path.parent.parent
    staged = path.parent.name.startswith(tempfile.gettempprefix())
    old = folder / path.name
    return old if staged and (folder / EXPORT_MANIFEST_FILE).exists() and old.is_dir() else path
