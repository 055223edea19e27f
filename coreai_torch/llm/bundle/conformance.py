"""`check`: the ten conformance steps of a bundle, on the runtime of this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ...errors import CodedError, GenerationError, NativeError
from ...progress import stages
from ...stopwatch import Stopwatch
from ..converting import check_model
from . import engine_runs
from .engine_runs import StepError, StepSkippedError, Trial
from .exporting import eos_token_ids
from .isolated import IsolatedRuntime
from .metadata import (
    FILE,
    GENERATION_KEY,
    INPUTS,
    KEYS,
    LOGITS,
    MAIN,
    VALUES,
    BundleMetadata,
    problems,
)
from .model_folder import load_model, read_tokenizer
from .runtime import BundleRuntime, check_engine, open_bundle
from .static import conformance as static_steps
from .static.runtime import open_static
from .tokenizer_folder import (
    FOLDER,
    chat_template,
    engine_stops,
    load_tokenizer,
    mid_turn,
    turn_end,
)
from .verifying import with_cache
from .vision import conformance as vision_steps
from .vision.conformance import VisionTrial
from .vision.families import family_of
from .vision.names import ENGINE_END
from .vision.runtime import VisionRuntime
from .weight_compression import compressed_like, is_known

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


@dataclass
class _Subject:
    """The bundle, and what earlier steps loaded from it."""

    bundle: Path
    model: Any = None
    reference_tokenizer: Any = None
    engine: str = "auto"
    device: str = "cpu"
    tokenizer: Any = None
    trial: Trial | None = None


Step: TypeAlias = Callable[[_Subject], str]


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
    subject = _Subject(folder, *_reference(model), engine, device)
    results: list[StepResult] = []
    with stages() as stage:
        for name, step in _steps(folder):
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


def _run(name: str, step: Step, subject: _Subject) -> StepResult:
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


def _check_folder(subject: _Subject) -> str:
    bundle = subject.bundle
    if bundle.suffix in (".aimodel", ".aimodelc"):
        raise StepError(f"the folder's name ends in {bundle.suffix}")
    path = bundle / FILE
    if not path.is_file():
        raise StepError(f"{FILE} is missing")
    content = json.loads(path.read_text("utf-8"))
    found = problems(content)
    if not found:
        found = [
            f"the asset {name} is missing"
            for name in content["assets"].values()
            if not (bundle / name).exists() and not (bundle / f"{name}c").exists()
        ]
    if found:
        raise StepError("; ".join(found))
    return f"schema 0.2, {', '.join(content['assets'].values())}"


def _check_tokenizer(subject: _Subject) -> str:
    folder = subject.bundle / FOLDER
    missing = [
        name
        for name in ("tokenizer.json", "tokenizer_config.json")
        if not (folder / name).is_file()
    ]
    if missing:
        raise StepError(f"{FOLDER} lacks {', '.join(missing)}")
    subject.tokenizer = tokenizer = load_tokenizer(folder)
    stops = engine_stops(folder, tokenizer)
    lost = set(_wanted_stops(subject)) - stops
    if lost:
        raise StepError(f"the engine does not stop at {_texts(tokenizer, lost)}")
    vocabulary = tokenizer.get_vocab()
    early = {vocabulary[text] for text in mid_turn(tokenizer)} & stops
    early -= set(_wanted_stops(subject))
    if early:
        raise StepError(f"the engine stops within a turn at {_texts(tokenizer, early)}")
    return f"stops at {_texts(tokenizer, stops) or 'no token'}; {_check_template(subject, folder)}"


def _wanted_stops(subject: _Subject) -> tuple[int, ...]:
    if subject.model is not None:
        return eos_token_ids(subject.model)
    metadata = BundleMetadata.read(subject.bundle)
    ends = json.loads(metadata.user_data.get(GENERATION_KEY, "{}")).get("eos_token_id")
    return () if ends is None else (ends,) if isinstance(ends, int) else tuple(ends)


def _texts(tokenizer: Any, ids: set[int]) -> str:
    return ", ".join(map(str, tokenizer.convert_ids_to_tokens(sorted(ids))))


def _check_template(subject: _Subject, folder: Path) -> str:
    tokenizer, reference = subject.tokenizer, subject.reference_tokenizer
    template = chat_template(tokenizer)
    config = json.loads((folder / "tokenizer_config.json").read_text("utf-8"))
    if template != config.get("chat_template"):
        raise StepError("the chat template is not in both places")
    if template is None:
        return "no chat template"
    if reference is not None:
        messages = [{"role": "user", "content": "Hello"}]
        rendered = [
            one.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
            for one in (tokenizer, reference)
        ]
        if rendered[0] != rendered[1]:
            raise StepError("the chat template renders other text than the model's")
    return "chat template"


def _check_ports(subject: _Subject) -> str:
    runtime: BundleRuntime = IsolatedRuntime(subject.bundle)
    _check_port_names(runtime)
    _check_port_types(runtime)
    keys = runtime.ports.state_descriptor(KEYS)
    engine = _engine(subject, runtime)
    if engine == "torch":
        runtime = open_bundle(subject.bundle, engine, subject.device)
    reference = _compressed_reference(subject, runtime)
    if reference is not None:
        reference = with_cache(reference, runtime.metadata)
    subject.trial = Trial(runtime, reference)
    layers, _, heads, _, width = keys.shape
    only = ", for the pipelined engine only" if runtime.metadata.kv_cache == "int8" else ""
    more = f", {' and '.join(runtime.fixed)}" if runtime.fixed else ""
    seen = f"{layers} layers of {heads} heads of {width}, {keys.dtype}{more}{only}"
    return f"{seen}, run by {engine}"


def _check_port_names(runtime: BundleRuntime) -> None:
    ports = runtime.ports
    found = []
    public = [one for one in runtime.function_names if not _is_private(one)]
    if public != [MAIN]:
        found.append(f"the functions are {public}, not ['{MAIN}']")
    for what, names, wanted in (
        ("inputs", ports.input_names, list(INPUTS)),
        ("states", ports.state_names, [KEYS, VALUES, *runtime.fixed]),
        ("outputs", ports.output_names[:1], [LOGITS]),
    ):
        if list(names) != wanted:
            found.append(f"the {what} are {list(names)}, not {wanted}")
    if found:
        raise StepError("; ".join(found))


def _check_port_types(runtime: BundleRuntime) -> None:
    ports, vocabulary = runtime.ports, runtime.metadata.vocab_size
    states = [ports.state_descriptor(name) for name in (KEYS, VALUES)]
    inputs = [ports.input_descriptor(name) for name in INPUTS]
    logits = ports.output_descriptor(LOGITS)
    shape = list(states[0].shape)
    checks = [
        ([list(one.shape) for one in inputs] == [[1, -1]] * 2, "the inputs are not [1, ?]"),
        ({str(one.dtype) for one in inputs} == {"int32"}, "the inputs are not int32"),
        (len(shape) == 5, f"{KEYS} has rank {len(shape)}, not 5"),
        (list(states[1].shape) == shape, f"{KEYS} and {VALUES} have other shapes"),
        (states[0].dtype == states[1].dtype, f"{KEYS} and {VALUES} have other dtypes"),
        (shape[3:4] in ([-1], [runtime.metadata.max_context_length]), "the slots are not dynamic"),
        (all(size > 0 for size in [*shape[:3], *shape[4:]]), f"{KEYS} has more dynamic sizes"),
        (str(logits.dtype) == "float16", f"{LOGITS} is {logits.dtype}, not float16"),
        (list(logits.shape) == [1, -1, vocabulary], f"{LOGITS} is not [1, ?, {vocabulary}]"),
        *(
            (min(sizes) > 0 and dtype.is_floating_point, f"{name} is not a fixed state of floats")
            for name, (sizes, dtype) in runtime.fixed.items()
        ),
    ]
    found = [message for holds, message in checks if not holds]
    if found:
        raise StepError("; ".join(found))


def _engine(subject: _Subject, runtime: BundleRuntime) -> str:
    """Return the engine: torch for float16, which the Linux runtime accumulates in 16 bits."""
    if subject.engine != "auto":
        return subject.engine
    half = runtime.compute_dtype == torch.float16
    return "torch" if half or subject.device != "cpu" else "runtime"


def _check_vision_tokenizer(subject: _Subject) -> str:
    """Check the tokenizer; the engine of vision-language bundles has its own stop rule."""
    seen = _check_tokenizer(subject)
    tokenizer = subject.tokenizer
    stops = {tokenizer.eos_token, ENGINE_END}
    end = turn_end(tokenizer)
    if end is not None and end not in stops:
        raise StepError(f"the engine does not stop at {end}, which ends a turn")
    image = BundleMetadata.read(subject.bundle).vision or {}
    if tokenizer.convert_ids_to_tokens(image["image_token_id"]) is None:
        raise StepError(f"the tokenizer has no image token {image['image_token_id']}")
    return seen


def _check_vision_ports(subject: _Subject) -> str:
    runtime = VisionRuntime(subject.bundle, "isolated")
    seen = vision_steps.check_ports(runtime)
    engine = _engine(subject, runtime)
    if engine == "torch":
        runtime = VisionRuntime(subject.bundle, engine, subject.device)
    model = _compressed_reference(subject, runtime)
    size = dict(runtime.metadata.vision or {})["image_size"]
    family = None if model is None else family_of(model, size)
    subject.trial = VisionTrial(runtime, family)
    return f"{seen}, run by {engine}"


def _compressed_reference(subject: _Subject, runtime: BundleRuntime) -> Any:
    """Return the model with the compression of the bundle; None if that is unknown."""
    if subject.model is None or not is_known(runtime.metadata):
        return None
    return compressed_like(subject.model, runtime.metadata, subject.tokenizer)


def _is_private(name: str) -> bool:
    """Return whether a function belongs to a composite; the engine does not list those."""
    return name != MAIN and name.startswith(("coreai.", "coreai_", "_"))


def _on_engine(run: Callable[[Any], str]) -> Step:
    def step(subject: _Subject) -> str:
        if subject.trial is None:
            raise StepSkippedError("the descriptors are wrong")
        return run(subject.trial)

    return step


_STEPS: list[tuple[str, Step]] = [
    ("folder", _check_folder),
    ("tokenizer", _check_tokenizer),
    ("descriptors", _check_ports),
    ("sequential decoding", _on_engine(engine_runs.decode)),
    ("growth", _on_engine(engine_runs.grow)),
    ("chunks", _on_engine(engine_runs.chunks)),
    ("dirty cache", _on_engine(engine_runs.dirty)),
    ("rewind", _on_engine(engine_runs.rewind)),
    ("warm-up", _on_engine(engine_runs.warm_up)),
    ("slots above context", _on_engine(engine_runs.many_slots)),
]

_VISION_STEPS: list[tuple[str, Step]] = [
    ("folder", _check_folder),
    ("tokenizer", _check_vision_tokenizer),
    ("descriptors", _check_vision_ports),
    *((name, _on_engine(run)) for name, run in vision_steps.RUNS),
    ("sequential decoding", _on_engine(engine_runs.decode)),
    ("chunks", _on_engine(engine_runs.chunks)),
    ("dirty cache", _on_engine(engine_runs.dirty)),
    ("rewind", _on_engine(engine_runs.rewind)),
    ("warm-up", _on_engine(engine_runs.warm_up)),
]


def _check_static_ports(subject: _Subject) -> str:
    runtime = open_static(subject.bundle, "torch", subject.device)
    seen = static_steps.check_ports(runtime)
    if subject.model is not None and runtime.metadata.compression is not None:
        from .static.requirements import in_half

        # 4 bits of a float32 weight and of its float16 value may differ.
        subject.model = in_half(subject.model, is_own=False)
    subject.trial = Trial(runtime, _compressed_reference(subject, runtime))
    return seen


_STATIC_STEPS: list[tuple[str, Step]] = [
    ("folder", _check_folder),
    ("tokenizer", _check_tokenizer),
    ("descriptors", _check_static_ports),
    *((name, _on_engine(run)) for name, run in static_steps.RUNS),
]


def _steps(bundle: Path) -> list[tuple[str, Step]]:
    """Return the steps for the kind of a bundle; those of a decoder if it is unknown."""
    try:
        metadata = BundleMetadata.read(bundle)
    except GenerationError:
        return _STEPS
    if metadata.is_static:
        return _STATIC_STEPS
    kind = metadata.kind
    return _VISION_STEPS if kind == "vlm" else _STEPS
