"""Read multiple-choice questions: JSON lines, or tasks of lm-evaluation-harness."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import GenerationError

_CONTEXTS = ("context", "query", "question", "ctx", "prompt")
_CHOICES = ("choices", "endings", "options")
_ANSWERS = ("answer", "gold", "label", "target")


@dataclass(frozen=True)
class Question:
    """A text with possible continuations, and the index of the right one."""

    context: str
    choices: tuple[str, ...]
    answer: int


def read_task(path: Path) -> list[Question]:
    """Return the questions of a `.jsonl` file or of a harness task in a `.yaml` file."""
    if not path.is_file():
        raise GenerationError(f"no task was found at {path}\n  try   pass a .jsonl or .yaml file")
    if path.suffix in (".yaml", ".yml"):
        return _harness(path)
    return [_question(path, number, doc) for number, doc in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.strip():
            continue
        try:
            doc = json.loads(line)
        except ValueError as error:
            raise _invalid(path, number, f"it is not JSON ({error})") from error
        if not isinstance(doc, Mapping):
            raise _invalid(path, number, "it is not a JSON object")
        yield number, doc


def _invalid(path: Path, number: int, reason: str) -> GenerationError:
    return GenerationError(
        f"line {number} of {path} is invalid: {reason}\n"
        '  try   write {"context": "...", "choices": ["...", "..."], "answer": 0} in each line'
    )


def _question(path: Path, number: int, doc: Mapping[str, Any]) -> Question:
    context = next((doc[key] for key in _CONTEXTS if key in doc), None)
    choices = next((doc[key] for key in _CHOICES if key in doc), None)
    answer = next((doc[key] for key in _ANSWERS if key in doc), None)
    if not isinstance(context, str) or not isinstance(choices, Sequence) or not choices:
        raise _invalid(path, number, "it has no context or no choices")
    texts = tuple(map(str, choices))
    index = _index(answer, texts)
    if index is None:
        raise _invalid(path, number, f"the answer {answer!r} is not one of the choices")
    spaced = tuple(one if one[:1].isspace() else f" {one}" for one in texts)
    return Question(context, spaced, index)


def _index(answer: Any, choices: Sequence[str]) -> int | None:
    """Return the place of an answer: a number, a letter, or the text of a choice."""
    if isinstance(answer, str) and answer in choices:
        return choices.index(answer)
    if isinstance(answer, str) and answer.strip().isdigit():
        answer = int(answer)
    if isinstance(answer, str) and len(answer) == 1:
        answer = ord(answer.upper()) - ord("A")
    valid = isinstance(answer, int) and 0 <= answer < len(choices)
    return int(answer) if valid else None


def _harness(path: Path) -> list[Question]:
    import yaml

    try:
        task = yaml.safe_load(path.read_text("utf-8"))
    except yaml.YAMLError as error:
        raise _unsupported(path, str(error).replace("\n", " ")) from error
    if not isinstance(task, Mapping) or task.get("output_type") != "multiple_choice":
        raise _unsupported(path, "output_type is not multiple_choice")
    missing = [one for one in ("doc_to_text", "doc_to_choice", "doc_to_target") if one not in task]
    if missing:
        raise _unsupported(path, f"{', '.join(missing)} is missing")
    data = path.parent / _data_file(path, task)
    if not data.is_file():
        raise _unsupported(path, f"{data} is missing")
    delimiter = str(task.get("target_delimiter", " "))
    questions = []
    for number, doc in _lines(data):
        choices = [str(one) for one in _choices(task["doc_to_choice"], doc)]
        answer = _index(_value(task["doc_to_target"], doc), choices)
        if answer is None:
            raise _invalid(data, number, "the target is not one of the choices")
        texts = tuple(delimiter + one for one in choices)
        questions.append(Question(str(_value(task["doc_to_text"], doc)), texts, answer))
    return questions


def _unsupported(path: Path, reason: str) -> GenerationError:
    return GenerationError(
        f"the task {path} cannot be used: {reason}\n"
        "  try   pass a multiple_choice task with dataset_kwargs.data_files as a local .jsonl file"
    )


def _data_file(path: Path, task: Mapping[str, Any]) -> str:
    files = (task.get("dataset_kwargs") or {}).get("data_files")
    if isinstance(files, Mapping):
        splits = [task.get(key) for key in ("test_split", "validation_split", "training_split")]
        files = next((files[split] for split in splits if split in files), None)
    if not isinstance(files, str):
        raise _unsupported(path, "dataset_kwargs.data_files names no local file")
    return files


def _value(template: Any, doc: Mapping[str, Any]) -> Any:
    """Return a field of the document, or render a Jinja template."""
    if not isinstance(template, str):
        return template
    if template in doc:
        return doc[template]
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    return ImmutableSandboxedEnvironment().from_string(template).render(doc)


def _choices(template: Any, doc: Mapping[str, Any]) -> Sequence[Any]:
    if isinstance(template, list):
        return [_value(one, doc) for one in template]
    value = _value(template, doc)
    return list(ast.literal_eval(value)) if isinstance(value, str) else list(value)
