"""`evaluate`: perplexity and multiple-choice accuracy of a bundle, compared with its model."""

from __future__ import annotations

import copy
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import torch
from torch import Tensor

from ...errors import GenerationError
from ...progress import progress
from .eval_tasks import Question, read_task
from .model_folder import load_model
from .opening import fast_loading, open_bundle
from .prompt_cache import fingerprint, folder_hash
from .reference import eager_logits, with_cache
from .runtime import BundleRuntime
from .runtime import Sequence as Tokens
from .tokenizer_folder import FOLDER, load_tokenizer
from .weight_compression import compressed_like, is_known

Scorer: TypeAlias = Callable[[Tensor], Tensor]
Result: TypeAlias = "dict[str, Any]"

BUNDLE, COMPRESSED, EAGER = "bundle", "compressed", "eager"
PERPLEXITY = "perplexity"


@dataclass(frozen=True)
class EvaluationReport:
    """Scores by subject: the bundle, the compressed model in torch, and the model in torch."""

    scores: Mapping[str, Mapping[str, float]]
    is_joint: bool = False  # the bundle is compressed in an unknown way

    def differences(self) -> dict[str, dict[str, float]]:
        """Return what conversion and compression change, for each score."""
        scores, found = self.scores, {}
        reference = scores.get(COMPRESSED) or scores.get(EAGER)
        if reference is not None:
            # Without the compressed model in torch, the two changes cannot be distinguished.
            name = "conversion and compression" if self.is_joint else "conversion"
            found[name] = _minus(scores[BUNDLE], reference)
        if COMPRESSED in scores and EAGER in scores:
            found["compression"] = _minus(scores[COMPRESSED], scores[EAGER])
        return found

    def as_dict(self) -> dict[str, Any]:
        """Return the report as JSON types."""
        return {"scores": {k: dict(v) for k, v in self.scores.items()}} | {
            "differences": self.differences()
        }

    def __str__(self) -> str:
        """Return a table: one row for each score, one column for each subject."""
        columns = {**self.scores, **{f"by {k}": v for k, v in self.differences().items()}}
        rows = [["", *columns]]
        rows += [
            [name, *(f"{column[name]:.5g}" for column in columns.values())]
            for name in self.scores[BUNDLE]
        ]
        widths = [max(len(row[at]) for row in rows) for at in range(len(rows[0]))]
        return "\n".join(
            "  ".join(cell.rjust(width) for cell, width in zip(row, widths, strict=True))
            for row in rows
        )


def _minus(one: Mapping[str, float], other: Mapping[str, float]) -> dict[str, float]:
    return {name: value - other[name] for name, value in one.items()}


def evaluate(
    bundle: Path | str,
    *,
    text: Path | str | None = None,
    tasks: Sequence[Path | str] = (),
    model: Any = None,
    engine: str = "runtime",
    device: str = "cpu",
    window: int = 512,
    limit: int | None = None,
    resume: Path | str | None = None,
    expand_weights: bool | None = None,
) -> EvaluationReport:
    """Measure the perplexity of a text and the accuracy of multiple-choice tasks.

    With `model`, the same is measured in torch. If the bundle is compressed, the model is also
    measured after the same compression, so that the report separates the change by conversion from
    the change by compression.

    Args:
        bundle: the folder of the bundle.
        text: a text file for the perplexity.
        tasks: `.jsonl` files with `context`, `choices` and `answer` in each line, or `.yaml` tasks
            of lm-evaluation-harness with local data.
        model: the uncompressed model that the bundle was made from, or its folder.
        engine: "runtime" for the runtime of this machine, "torch" to compute the program in torch.
        device: the device of torch, for the bundle and the model.
        window: the number of tokens of the text that are scored together.
        limit: the maximum number of windows and of questions of each task.
        resume: a file that stores each result; a second call continues from it.
        expand_weights: expand compressed weights when they are loaded; see `load`.
    """
    runtime = open_bundle(bundle, engine, device, fast_loading(expand_weights))
    _check_sizes(window, limit)
    tokenizer = load_tokenizer(Path(bundle) / FOLDER)
    context = runtime.metadata.max_context_length
    units: list[_Window | _Choice] = [
        *_windows(text, tokenizer, runtime, window, limit),
        *_questions(tasks, limit),
    ]
    if not units:
        raise GenerationError("nothing to evaluate\n  try   pass a text file or tasks")
    loaded = None if model is None else _Loaded(model, device)
    subjects = _subjects(runtime, loaded)
    store = _Store(resume, fingerprint(runtime), runtime.metadata.name)
    scores = {}
    with torch.no_grad(), progress("evaluating", len(units) * len(subjects)) as advance:
        for name, score in subjects.items():
            results = []
            for unit in units:
                of = "" if loaded is None or name == BUNDLE else f"/{loaded.identity}"
                key = f"{name}{of}/{unit.key}"
                if (result := store.get(key)) is None:
                    result = store.put(key, unit.measure(score(), tokenizer, context))
                results.append(result)
                advance()
            scores[name] = _summary(units, results)
    return EvaluationReport(scores, not is_known(runtime.metadata))


@dataclass(frozen=True)
class _Window:
    """Tokens of a text; the first one is context only."""

    key: str
    tokens: tuple[int, ...]
    group: str = PERPLEXITY

    def measure(self, score: Scorer, tokenizer: Any, context: int) -> Result:
        tokens = torch.tensor(self.tokens)
        chosen = _chosen(score(tokens), tokens)
        return {"loss": -float(chosen.sum()), "tokens": len(chosen)}


@dataclass(frozen=True)
class _Choice:
    """A question of a task."""

    key: str
    question: Question
    group: str

    def measure(self, score: Scorer, tokenizer: Any, context: int) -> Result:
        question = self.question
        sums = []
        for choice in question.choices:
            before = len(tokenizer(question.context).input_ids)
            tokens = torch.tensor(tokenizer(question.context + choice).input_ids)
            new = len(tokens) - max(1, min(before, len(tokens) - 1))
            tokens = tokens[-context:]  # of a long question, the end counts, as in the harness
            sums.append(float(_chosen(score(tokens), tokens)[-new:].sum()))
        lengths = [max(len(choice.strip().encode()), 1) for choice in question.choices]
        normalized = [one / length for one, length in zip(sums, lengths, strict=True)]
        return {
            "right": int(sums.index(max(sums)) == question.answer),
            "right_normalized": int(normalized.index(max(normalized)) == question.answer),
        }


def _chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log probability of each token after the first, given those before it."""
    rows = logits[:-1].float().log_softmax(-1)
    return rows.gather(1, tokens[1:, None])[:, 0]


def _windows(
    text: Path | str | None, tokenizer: Any, runtime: BundleRuntime, window: int, limit: int | None
) -> Iterator[_Window]:
    if text is None:
        return
    if not Path(text).is_file():
        raise GenerationError(f"no text was found at {text}\n  try   pass the path of a text file")
    size = min(window, runtime.metadata.max_context_length)
    tokens = tokenizer(Path(text).read_text("utf-8")).input_ids
    pieces = [tokens[at : at + size] for at in range(0, len(tokens), size)]
    usable = [piece for piece in pieces if len(piece) > 1][:limit]
    for piece in usable:
        yield _Window(f"{PERPLEXITY}/{_hash(piece)}", tuple(piece))


def _questions(tasks: Sequence[Path | str], limit: int | None) -> Iterator[_Choice]:
    stems = [Path(one).stem for one in tasks]
    for path in map(Path, tasks):
        group = path.stem if stems.count(path.stem) == 1 else str(path)
        for question in read_task(path)[:limit]:
            yield _Choice(f"choice/{_hash(vars(question))}", question, group)


def _hash(content: Any) -> str:
    """Return a hash of what is measured: a result must not outlive a change of its file."""
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def _check_sizes(window: int, limit: int | None) -> None:
    if not isinstance(window, int) or window < 2:
        raise GenerationError(f"window is {window!r}\n  try   pass a window of 2 tokens or more")
    if limit is not None and (not isinstance(limit, int) or limit < 1):
        raise GenerationError(f"limit is {limit!r}\n  try   pass a limit of 1 or more, or None")


def _subjects(runtime: BundleRuntime, loaded: _Loaded | None) -> dict[str, Callable[[], Scorer]]:
    """Return a function for each subject that loads it when it is first needed."""
    subjects: dict[str, Callable[[], Scorer]] = {
        BUNDLE: lambda: lambda tokens: Tokens(runtime).append(tokens)
    }
    if loaded is None:
        return subjects
    metadata = runtime.metadata
    is_changed = metadata.compression is not None or metadata.kv_cache == "int8"
    if is_changed and is_known(metadata):
        subjects[COMPRESSED] = lambda: loaded.compressed(runtime)
    subjects[EAGER] = loaded.original
    return subjects


class _Loaded:
    """The model in torch, loaded and compressed at most once."""

    def __init__(self, model: Any, device: str) -> None:
        self.device, self.source = device, model
        if not isinstance(model, str | Path | torch.nn.Module):
            raise GenerationError(
                f"model is a {type(model).__name__}\n  try   pass a model, or its folder"
            )

    @cached_property
    def identity(self) -> str:
        """Return a hash of the model, without loading it."""
        if isinstance(self.source, str | Path):
            return folder_hash(Path(self.source))[:16]
        first = {name: one.flatten()[:4].tolist() for name, one in self.source.named_parameters()}
        return _hash(first)

    @cached_property
    def _model(self) -> Any:
        return load_model(self.source) if isinstance(self.source, str | Path) else self.source

    @cached_property
    def _on_device(self) -> Any:
        return self._model if self.device == "cpu" else copy.deepcopy(self._model).to(self.device)

    def original(self) -> Scorer:
        """Return the scores of the model itself."""
        return self._scorer(self._on_device)

    def compressed(self, runtime: BundleRuntime) -> Scorer:
        """Return the scores of the model with the compression of a bundle."""
        if self._like_bundle is None:
            model = self._on_device
            if runtime.metadata.compression is not None:
                tokenizer = load_tokenizer(runtime.bundle / FOLDER)
                model = compressed_like(self._model, runtime.metadata, tokenizer).to(self.device)
            self._like_bundle = with_cache(model, runtime.metadata)
        return self._scorer(self._like_bundle)

    _like_bundle: Any = None

    def _scorer(self, model: Any) -> Scorer:
        return lambda tokens: eager_logits(model, tokens.to(self.device)).cpu()


class _Store:
    """Results by key, also in a file if one is given."""

    def __init__(self, path: Path | str | None, identity: str, name: str) -> None:
        self.path = None if path is None else Path(path)
        self.results: dict[str, Result] = {}
        if self.path is None:
            return
        header = {"bundle": identity}
        if not self.path.exists():
            self.path.write_text(json.dumps(header) + "\n", "utf-8")
        lines = self.path.read_text("utf-8").splitlines()
        if not lines or json.loads(lines[0]) != header:
            raise GenerationError(
                f"{self.path} belongs to another bundle than {name}\n  try   delete the file"
            )
        for line in lines[1:]:
            try:
                entry = json.loads(line)
            except ValueError:  # the last line of an interrupted run
                continue
            self.results[entry.pop("key")] = entry

    def get(self, key: str) -> Result | None:
        return self.results.get(key)

    def put(self, key: str, result: Result) -> Result:
        self.results[key] = result
        if self.path is not None:
            with self.path.open("a", encoding="utf-8") as file:
                file.write(json.dumps({"key": key, **result}) + "\n")
        return result


def _summary(units: Sequence[Any], results: Sequence[Result]) -> dict[str, float]:
    scores: dict[str, float] = {}
    for group in dict.fromkeys(unit.group for unit in units):
        rows = [row for unit, row in zip(units, results, strict=True) if unit.group == group]
        if group == PERPLEXITY:
            loss, count = (sum(row[name] for row in rows) for name in ("loss", "tokens"))
            scores[PERPLEXITY] = math.exp(min(loss / count, 700.0))
        else:
            for name, key in (("accuracy", "right"), ("normalized accuracy", "right_normalized")):
                scores[f"{group} {name}"] = sum(row[key] for row in rows) / len(rows)
    return scores
