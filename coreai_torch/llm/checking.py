"""Compare the converted program with the model: prefill and decoding steps from a saved asset."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping, Sequence
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
HALF = (torch.float16, torch.bfloat16)
TIMEOUT = 600.0  # seconds for each step of native code

LIMITS = limits(DECODER_STEP)
# Half floats: the error against float32 may be so many times that of the model itself. Seen with
# 7 billion weights: 1.03 in float16, 0.9 in bfloat16.
FACTOR = 2.0
_LARGE = 4 << 30  # bytes of weights that are copied to float32 only if the logits differ


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
    in_float32: Callable[[], Tensor]  # computes the same logits in float32
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
        rest = [(at, at + 1) for at in range(prompt, self.tokens.shape[1])]
        decoded, _ = self._step(path, "decode", given, states, rest)
        logits = torch.stack([got[0], *decoded], 1)
        return self._wrong_position(logits, prompt - 1)

    def _wrong_position(self, logits: Tensor, first: int) -> str:
        """Describe the first wrong logits; `first` is their position among the tokens."""
        want = self.logits[:, first:]
        problems = [
            _difference(g, w) for g, w in zip(logits.unbind(1), want.unbind(1), strict=True)
        ]
        size = sum(p.nbytes for p in self.model.parameters())
        if want.dtype in HALF and (any(problems) or size < _LARGE):
            problems = self._by_float32(logits, want, first) or problems
        for at, problem in enumerate(problems):
            if problem:
                name = (
                    f"decode at position {first + at}" if at else f"prefill of {first + 1} tokens"
                )
                return f"{name} {problem}"
        return ""

    def _by_float32(self, logits: Tensor, want: Tensor, first: int) -> list[str]:
        """Compare errors against float32, which the model's own rounding does not hide."""
        try:
            exact = self.in_float32()[:, first:]
        except (RuntimeError, TypeError, ValueError):  # layers with a fixed dtype
            return []
        usual = float((want.float() - exact).abs().max())
        errors = (logits.float() - exact).abs().amax((0, 2)).tolist()
        return [
            # Written so that a NaN error fails, too.
            ""
            if error <= FACTOR * usual
            else f"differs from float32 by {error:.2g}, the model itself by {usual:.2g}"
            for error in errors
        ]

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
