"""Compare the converted program with the model: prefill and decoding steps from a saved asset."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ..asset import reading
from ..errors import ConversionError
from ..numerics.arrays import array, tensor
from ..numerics.tolerance import DECODER_STEP, limits
from ..verification.engines import Engine, chosen, start
from ..verification.isolation import Arrays, ProgramFile
from .program import GenerationProgram

LENGTH = 12  # tokens of the check, fewer if the cache is shorter
DECODED = 4  # of these the last ones, token by token, after a prefill of the others
TIMEOUT = 600.0  # seconds for each step of native code

LIMITS = limits(DECODER_STEP)


def trial(batch: int, max_length: int, vocabulary: int) -> Tensor:
    """Return reproducible random tokens."""
    generator = torch.Generator().manual_seed(0)
    return torch.randint(0, vocabulary, (batch, min(LENGTH, max_length)), generator=generator)


@dataclass(frozen=True)
class Encoded:
    """The encoder's part of a check: its exported step, its inputs, and the model's results."""

    program: torch.export.ExportedProgram
    inputs: Mapping[str, Tensor]
    want: Sequence[Tensor]


@dataclass(frozen=True)
class Check:
    """The tokens and results of the model that a converted program must reproduce."""

    model: Any
    programs: Mapping[str, torch.export.ExportedProgram]  # `prefill` and `decode`, as exported
    tokens: Tensor
    logits: Tensor  # of the model without a cache, after each token
    extra_args: Sequence[Any] = ()  # further arguments of the exported steps
    encoded: Encoded | None = None

    def __call__(self, program: GenerationProgram) -> None:
        """Save the program, run it from the asset, and raise if its numbers differ.

        If the exported steps differ in torch as well, the error says that export is at fault.
        """
        with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
            path = Path(folder) / "checked.aimodel"
            program.save_asset(path)
            problem = self._first_difference(path)
        if problem:
            self._check_export()
            raise ConversionError(
                f"the converted program of {type(self.model).__name__} computes other numbers "
                f"than the model: {problem}\n"
                "  try   convert with recognize=False, and report the model; pass verify=False to "
                "skip this check"
            )

    def _first_difference(self, path: Path) -> str:
        """Run all entry points of the asset; describe the first result that differs."""
        given: dict[str, Any] = {}
        if self.encoded is not None:
            given = {name: array(value) for name, value in self.encoded.inputs.items()}
            results, _ = self._run(path, "encode", given, {})
            for (name, value), want in zip(results.items(), self.encoded.want, strict=True):
                if problem := _difference(tensor(value), want):
                    return f"encode: {name} {problem}"
            given |= results
        prompt = max(2, self.tokens.shape[1] - DECODED)
        states = _zero_states(path)
        got, states = self._step(path, "prefill", given, states, [(0, prompt)])
        if problem := _difference(got[0], self.logits[:, prompt - 1]):
            return f"prefill of {prompt} tokens {problem}"
        rest = [(at, at + 1) for at in range(prompt, self.tokens.shape[1])]
        got, _ = self._step(path, "decode", given, states, rest)
        for (at, _), logits in zip(rest, got, strict=True):
            if problem := _difference(logits, self.logits[:, at]):
                return f"decode at position {at} {problem}"
        return ""

    def _step(
        self,
        path: Path,
        entrypoint: str,
        given: Mapping[str, Any],
        states: Arrays,
        spans: Sequence[tuple[int, int]],
    ) -> tuple[list[Tensor], Arrays]:
        """Call one entry point for each span of tokens; return the logits and the last states."""
        logits = []
        with closing(self._start(path, entrypoint)) as runner:
            for begin, end in spans:
                feeds = {
                    **given,
                    "input_ids": array(self.tokens[:, begin:end]),
                    "position": array(torch.tensor([begin])),
                }
                taken = {name: feeds[name] for name in runner.ports.inputs}
                outputs, states = runner.call(taken, states)
                logits.append(tensor(outputs["logits"]))
        return logits, states

    def _run(
        self, path: Path, entrypoint: str, inputs: Arrays, states: Arrays
    ) -> tuple[Arrays, Arrays]:
        with closing(self._start(path, entrypoint)) as runner:
            outputs, states = runner.call(inputs, states)
            return {name: outputs[name] for name in runner.ports.outputs}, states

    def _start(self, path: Path, entrypoint: str) -> Any:
        engine, _ = chosen(Engine.AUTO, self.programs["decode"])
        source = ProgramFile(asset=path)
        return start(engine, source, entrypoint=entrypoint, optimize=False, timeout=TIMEOUT)

    def _check_export(self) -> None:
        """Run the exported steps in torch and raise if they differ from the model."""
        if self.encoded is not None:
            made = self.encoded.program.module()(*self.encoded.inputs.values())
            for one, other in zip(made, self.encoded.want, strict=True):
                self._check("encode", one, other)
        prefill, decode = (self.programs[name].module() for name in ("prefill", "decode"))
        want = self.logits[:, -1]
        logits = prefill(self.tokens, torch.tensor([0]), *self.extra_args)
        self._check("prefill", logits, want)
        for position, token in enumerate(self.tokens.split(1, 1)):
            logits = decode(token, torch.tensor([position]), *self.extra_args)
        self._check("decode", logits, want)

    def _check(self, entrypoint: str, got: Tensor, want: Tensor) -> None:
        if problem := _difference(got, want):
            raise ConversionError(
                f"{type(self.model).__name__} computes other numbers with a cache of fixed "
                f"length: {entrypoint} {problem}\n"
                "  try   use a model class of transformers itself, whose masks and positions "
                "follow the cache; pass verify=False to skip this check"
            )


def _difference(got: Tensor, want: Tensor) -> str:
    """Describe a difference beyond the limit of the dtype; empty if there is none."""
    if got.shape != want.shape:
        return f"has shape {list(got.shape)}, the model gives {list(want.shape)}"
    difference, largest = float((got - want).abs().max()), float(want.abs().max())
    # Written so that a NaN difference fails, too.
    if difference <= LIMITS[want.dtype] * largest:
        return ""
    return f"differs by {difference:.2g}, the largest value is {largest:.2g}"


def _zero_states(path: Path) -> Arrays:
    ports = reading.read(path, largest=0).functions["prefill"].inputs
    states = (port for port in ports if port.type.kind == "handle")
    return {
        port.name: array(torch.zeros(port.type.shape, dtype=port.type.dtype)) for port in states
    }
