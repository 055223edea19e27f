"""`check`: the conformance steps of a bundle, on the runtime of this machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ....errors import CodedError, ConversionError, GenerationError, NativeError
from ....progress import stages
from ....stopwatch import Stopwatch
from ...converting import check_model
from ..engines import check_engine
from ..metadata import BundleMetadata
from ..model_folder import load_model, read_tokenizer
from ..opening import open_bundle
from ..reference import compute_dtype, with_cache
from ..runtime import BundleRuntime
from ..vision.families import family_of
from ..weight_compression import compressed_like, is_known
from . import descriptors, files, static, vision
from . import runs as decoder
from .trial import StepError, StepSkippedError, Subject, Trial

Step: TypeAlias = Callable[[Subject], str]

OK, FAILED, SKIPPED = "ok", "failed", "skipped"


@dataclass(frozen=True)
class StepResult:
    """The result of one step: its status, what was seen, and the time it took."""

    name: str
    status: str
    detail: str
    seconds: float = 0.0


@dataclass(frozen=True)
class BundleReport:
    """The results of all steps; a skipped step does not fail the bundle."""

    bundle: Path
    steps: tuple[StepResult, ...]

    @property
    def ok(self) -> bool:
        """Return whether no step failed."""
        return all(step.status != FAILED for step in self.steps)

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        steps = [
            {"step": number, **vars(step), "seconds": round(step.seconds, 3)}
            for number, step in enumerate(self.steps, 1)
        ]
        return {"bundle": str(self.bundle), "ok": self.ok, "steps": steps}

    def __str__(self) -> str:
        """Return one line for each step."""
        lines = [
            f"  {number:>2}  {step.name:<20}  {step.status:<7}  {step.detail}"
            for number, step in enumerate(self.steps, 1)
        ]
        failed = sum(step.status == FAILED for step in self.steps)
        verdict = "conforms" if not failed else f"{failed} of {len(self.steps)} steps failed"
        return "\n".join([f"{self.bundle}: {verdict}", *lines])


def check(
    bundle: Path | str, model: Any = None, *, engine: str = "auto", device: str = "cpu"
) -> BundleReport:
    """Run the ten conformance steps on a bundle and return their results.

    The steps emulate the sequential engine: structure of the folder, stop tokens, descriptors,
    decoding at 256 slots, growth by doubling, chunks of 512 tokens, unused slots, rewinding, the
    warm-up call, and more slots than the context. With `model`, the logits are also compared with
    those of transformers. The native code runs in a child process, so that its crash is a failed
    step with the reason. A vision-language bundle has steps for its embedding and its images, and
    none for growth. A static bundle has steps for `prompt_opt`, all sizes and aligned blocks.

    Args:
        bundle: the folder of the bundle.
        model: the model that the bundle was made from, or its folder.
        engine: "runtime" runs the bundle on the runtime of this machine, "torch" computes it op by
            op in torch. By default it is the runtime, and torch for float16, which the Linux
            runtime accumulates in 16 bits.
        device: the device of torch, such as "cuda".
    """
    folder = Path(bundle)
    if not folder.is_dir():
        raise GenerationError(
            f"no bundle was found at {folder}\n"
            "  try   write one with coreai_torch.llm.export(model, folder)"
        )
    if engine not in ("auto", "runtime", "torch"):
        raise GenerationError(
            f"unknown engine {engine!r}\n  try   pass 'auto', 'runtime' or 'torch'"
        )
    check_engine("torch" if engine == "auto" else engine, device)
    subject = Subject(folder, *_reference(model), engine, device)
    results: list[StepResult] = []
    with stages() as stage:
        for name, step in _steps_of(folder).items():
            with stage(name):
                results.append(_run(name, step, subject))
    return BundleReport(folder, tuple(results))


def _reference(model: Any) -> tuple[Any, Any]:
    """Return the model to compare with and, if it is a folder, its tokenizer."""
    if not isinstance(model, str | Path):
        if model is not None:
            check_model(model)
        return model, None
    loaded = load_model(model)
    return loaded, read_tokenizer(model)


def _run(name: str, step: Step, subject: Subject) -> StepResult:
    watch = Stopwatch()
    try:
        status, detail = OK, step(subject)
    except StepSkippedError as skipped:
        status, detail = SKIPPED, str(skipped)
    except StepError as failure:
        status, detail = FAILED, str(failure)
    except NativeError as error:
        lines = str(error).partition("\n  try ")[0].splitlines()
        status, detail = FAILED, ", ".join(line.strip() for line in lines)
    except CodedError as error:
        status, detail = FAILED, str(error).partition("\n")[0]
    except (RuntimeError, ValueError, KeyError, OSError) as error:
        status, detail = FAILED, f"{type(error).__name__}: {error}"
    return StepResult(name, status, detail, watch.seconds)


def _opens(check_ports: Callable[[Any], str], open_trial: Callable[..., Trial]) -> Step:
    """Return the step that checks the descriptors and opens the bundle for the other steps."""

    def step(subject: Subject) -> str:
        runtime = open_bundle(subject.bundle, "isolated", subject.device)
        seen = check_ports(runtime)
        engine = _engine(subject, runtime)
        if engine == "torch" and runtime.engine != engine:
            runtime = open_bundle(subject.bundle, engine, subject.device)
        subject.trial = open_trial(runtime, _compressed_reference(subject, runtime))
        return f"{seen}, run by {engine}"

    return step


def _engine(subject: Subject, runtime: BundleRuntime) -> str:
    """Return the engine: torch for float16, which the Linux runtime accumulates in 16 bits."""
    if subject.engine != "auto" and not runtime.metadata.is_static:
        return subject.engine
    half = runtime.compute_dtype == torch.float16
    return "torch" if half or subject.device != "cpu" else "runtime"


def _compressed_reference(subject: Subject, runtime: BundleRuntime) -> Any:
    """Return the model with the compression of the bundle; None if that is unknown."""
    model, metadata = subject.model, runtime.metadata
    if model is None or not is_known(metadata):
        return None
    if metadata.is_static and metadata.compression is not None:
        from ..static.requirements import in_half

        # 4 bits of a float32 weight and of its float16 value may differ.
        model = in_half(model, is_own=False)
    return compressed_like(model, metadata, subject.tokenizer)


def _trial(runtime: BundleRuntime, model: Any) -> Trial:
    return Trial(runtime, None if model is None else with_cache(model, runtime.metadata))


def _vision_trial(runtime: Any, model: Any) -> Trial:
    size = dict(runtime.metadata.vision or {})["image_size"]
    return vision.VisionTrial(runtime, None if model is None else family_of(model, size))


def _on_engine(run: Callable[[Any], str]) -> Step:
    def step(subject: Subject) -> str:
        if subject.trial is None:
            raise StepSkippedError("the descriptors are wrong")
        return run(subject.trial)

    return step


def _steps(
    tokenizer: Step, descriptors: Step, runs: Mapping[str, Callable[[Any], str]]
) -> dict[str, Step]:
    first = {"folder": files.check_folder, "tokenizer": tokenizer, "descriptors": descriptors}
    return first | {name: _on_engine(run) for name, run in runs.items()}


# The steps of each kind of bundle.
STEPS = {
    "llm": _steps(files.check_tokenizer, _opens(descriptors.check_ports, _trial), decoder.RUNS),
    "vlm": _steps(
        files.check_vision_tokenizer, _opens(vision.check_ports, _vision_trial), vision.RUNS
    ),
    "static": _steps(files.check_tokenizer, _opens(static.check_ports, _trial), static.RUNS),
}


def _steps_of(bundle: Path) -> dict[str, Step]:
    """Return the steps for the kind of a bundle; those of a decoder if it is unknown."""
    try:
        metadata = BundleMetadata.read(bundle)
    except GenerationError:
        return STEPS["llm"]
    return STEPS["static" if metadata.is_static else metadata.kind]


def verify_bundle(bundle: Path, model: Any, family: Any = None) -> None:
    """Run a prompt and single tokens; raise `ConversionError` if any logits differ.

    `family` is the family of a vision-language model, whose prompt contains an image.
    """
    # The Linux runtime accumulates float16 products in 16 bits, unlike devices.
    dtype = family.dtype if family else compute_dtype(model)
    engine = "torch" if dtype == torch.float16 else "isolated"
    runtime: Any = open_bundle(bundle, engine)
    trial = vision.VisionTrial(runtime, family) if family else _trial(runtime, model)
    tokens, want = trial.example()
    if not bool(torch.isfinite(want).all()):
        raise ConversionError(
            f"{type(model).__name__} itself computes logits that are not finite\n"
            "  try   check its weights for NaN and infinities, or load it with dtype='float32'"
        )
    prompt = max(len(tokens) - trial.single, 1)
    sequence = trial.sequence(fill=runtime.unused)
    rows = [
        sequence.append(one) for one in (tokens[:prompt], *tokens[prompt:].split(1)) if len(one)
    ]
    try:
        trial.near(torch.cat(rows), want, "the logits")
    except StepError as error:
        raise ConversionError(
            f"the bundle of {type(model).__name__} computes other logits than the model: {error}\n"
            "  try   use a model class of transformers itself, whose masks and positions follow "
            "the cache; pass verify=False to skip this check"
        ) from None
