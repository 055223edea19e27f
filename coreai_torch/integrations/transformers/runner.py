"""`CoreAIModelRunner`: call a converted model as the model it came from."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from coreai.authoring import AIModelAsset, AIProgram
from transformers.exporters.metadata import ExportMetadata
from transformers.exporters.runners.base import ModelRunner

from ... import load, read_metadata
from ...errors import NamingError, RunError
from ...torch_compat import pytree
from .structure import KEY, Result, Structure, named_tensors


class CoreAIModelRunner(ModelRunner):  # type: ignore[misc]  # mypy does not follow transformers
    """Run a program on the runtime of this machine; several threads may call it.

    A state, such as a static cache, is an argument that is updated in place: its first call moves
    it to memory of the runtime, and later ones do not copy it. Arguments may be NumPy arrays; if
    all are, so are the results.
    """

    def __init__(self, program: AIProgram | AIModelAsset, metadata: ExportMetadata) -> None:
        """Compile a program for this machine."""
        super().__init__(metadata)
        self.structure = _structure_of(program)
        self._loaded = load(program.path if isinstance(program, AIModelAsset) else program)

    @property
    def device(self) -> torch.device:
        """Return the CPU: inputs and outputs are in its memory."""
        return torch.device("cpu")

    @classmethod
    def from_program(
        cls,
        program: AIProgram | AIModelAsset,
        metadata: ExportMetadata,
        device: Any = None,
    ) -> CoreAIModelRunner:
        """Return a runner; `device` may be the CPU only."""
        if device is not None and torch.device(device).type != "cpu":
            raise RunError(f"Core AI takes tensors of the CPU, not {device}\n  try   device='cpu'")
        return cls(program, metadata)

    def __call__(
        self, share_inputs: bool = True, share_outputs: bool = False, **kwargs: Any
    ) -> Any:
        """Return what the model returns; arguments may be in any order."""
        self._check_constants(kwargs)
        is_array = _has_arrays_only(kwargs)
        kwargs = pytree.tree_map_only(np.ndarray, torch.from_numpy, kwargs) if is_array else kwargs
        given = named_tensors(kwargs)
        missing = [n for n in (*self.structure.inputs, *self.structure.states) if n not in given]
        if missing:
            raise NamingError(
                f"the program takes {missing}, which {list(kwargs)} do not hold\n"
                "  try   pass the arguments that it was exported with"
            )
        states = {name: self._state(given[name]) for name in self.structure.states}
        outputs = self._loaded({n: given[n] for n in self.structure.inputs}, state=states)
        results: list[Any] = []
        for result in self.structure.results:
            results.append(_value(result, outputs, given, results))
        found = self.unflatten(results)
        return pytree.tree_map_only(torch.Tensor, lambda x: x.numpy(), found) if is_array else found

    def call_known(self, kwargs: Mapping[str, Any]) -> Any:
        """Call with those of many arguments that the model was exported with."""
        known = {name: kwargs[name] for name in self.metadata.kwargs if name in kwargs}
        return self(**{name: value for name, value in known.items() if value is not None})

    def _check_constants(self, kwargs: Mapping[str, Any]) -> None:
        for name, value in self.metadata.in_constants.items():
            if name in kwargs and kwargs[name] != value:
                raise RunError(
                    f"{name} is {kwargs[name]!r}, but the model was exported with {value!r}\n"
                    f"  try   export it with {name}={kwargs[name]!r}"
                )

    def _state(self, value: torch.Tensor) -> torch.Tensor:
        """Return a state; a tensor that owns its memory is moved to memory of the runtime."""
        owns = value.is_contiguous() and value.untyped_storage().nbytes() == value.nbytes
        return self._loaded.keep(value) if owns and value.is_floating_point() else value


def _structure_of(program: AIProgram | AIModelAsset) -> Structure:
    stored = read_metadata(program)
    if KEY not in stored:
        raise RunError(
            "the program does not record the arguments of a model of transformers\n"
            "  try   export it with CoreAIExporter"
        )
    return Structure.of(json.loads(stored[KEY]))


def _value(
    result: Result,
    outputs: Mapping[str, torch.Tensor],
    given: Mapping[str, torch.Tensor],
    earlier: list[Any],
) -> Any:
    if result.argument:
        return given[result.argument]
    if result.same >= 0:
        return earlier[result.same]
    if result.number:
        return outputs[result.output].item()
    return outputs[result.output].to(getattr(torch, result.dtype))


def _has_arrays_only(kwargs: Mapping[str, Any]) -> bool:
    leaves = [
        x for x in pytree.tree_leaves(dict(kwargs)) if isinstance(x, torch.Tensor | np.ndarray)
    ]
    return bool(leaves) and all(isinstance(leaf, np.ndarray) for leaf in leaves)
