"""`llm.evaluate`: perplexity and accuracy of a bundle, and the tasks that it reads."""

from __future__ import annotations

import json

import pytest
import torch

from coreai_torch import llm
from coreai_torch.cli import main
from coreai_torch.errors import GenerationError
from coreai_torch.llm.bundle.eval_tasks import Question, read_task
from coreai_torch.llm.bundle.evaluation import EvaluationReport

TEXT = "the cat sat on the mat, and the dog sat on the log. " * 3
QUESTIONS = [
    {"context": "the cat sat on the", "choices": ["mat", "moon", "x"], "answer": 0},
    {"context": "the dog sat on the", "choices": ["car", "log"], "answer": "B"},
]


@pytest.fixture
def files(tmp_path):
    (tmp_path / "text.txt").write_text(TEXT)
    lines = "\n".join(map(json.dumps, QUESTIONS))
    (tmp_path / "pets.jsonl").write_text(lines + "\n\n")
    return tmp_path


def _perplexity(bundle, size):
    tokens = torch.tensor(bundle.tokenizer(TEXT).input_ids)
    losses = []
    for piece in tokens.split(size):
        with torch.no_grad():
            rows = bundle.model(piece[None]).logits[0, :-1].log_softmax(-1)
        losses.append(-rows.gather(1, piece[1:, None]))
    return float(torch.cat(losses).mean().exp())


def test_perplexity_equals_eager(llama_bundle, files):
    report = llm.evaluate(
        llama_bundle.path, text=files / "text.txt", model=llama_bundle.model, window=64
    )
    want = _perplexity(llama_bundle, 64)
    assert report.scores["eager"]["perplexity"] == pytest.approx(want, rel=1e-5)
    assert report.scores["bundle"]["perplexity"] == pytest.approx(want, rel=1e-3)
    assert list(report.differences()) == ["conversion"]
    assert "by conversion" in str(report)


def test_accuracy_counts_the_likeliest_choice(llama_bundle, files):
    report = llm.evaluate(
        llama_bundle.path, tasks=[files / "pets.jsonl"], model=llama_bundle.model, engine="torch"
    )
    right = 0
    for question in read_task(files / "pets.jsonl"):
        sums = []
        for choice in question.choices:
            tokens = torch.tensor(llama_bundle.tokenizer(question.context + choice).input_ids)
            with torch.no_grad():
                rows = llama_bundle.model(tokens[None]).logits[0, :-1].log_softmax(-1)
            chosen = rows.gather(1, tokens[1:, None])[:, 0]
            sums.append(float(chosen[len(question.context) - 1 :].sum()))
        right += sums.index(max(sums)) == question.answer
    for subject in ("bundle", "eager"):
        assert report.scores[subject]["pets accuracy"] == right / 2


def test_results_are_resumed(llama_bundle, files, monkeypatch):
    stored = files / "results.jsonl"
    first = llm.evaluate(llama_bundle.path, text=files / "text.txt", window=40, resume=stored)
    stored.write_text(stored.read_text() + '{"key": "bund')
    from coreai_torch.llm.bundle import evaluation

    def fail(*_, **__):
        raise AssertionError("a stored result was measured again")

    monkeypatch.setattr(evaluation, "Tokens", fail)
    again = llm.evaluate(llama_bundle.path, text=files / "text.txt", window=40, resume=stored)
    assert again == first
    stored.write_text('{"bundle": "other"}\n')
    with pytest.raises(GenerationError, match="belongs to another bundle"):
        llm.evaluate(llama_bundle.path, text=files / "text.txt", resume=stored)


def test_changed_text_is_measured_again(llama_bundle, files):
    stored, text = files / "results.jsonl", files / "text.txt"
    first = llm.evaluate(llama_bundle.path, text=text, window=40, resume=stored)
    text.write_text(TEXT.upper())
    again = llm.evaluate(llama_bundle.path, text=text, window=40, resume=stored)
    assert again != first
    assert again == llm.evaluate(llama_bundle.path, text=text, window=40)


def test_other_model_is_measured_again(llama_bundle, files):
    stored, text = files / "results.jsonl", files / "text.txt"
    options = {"text": text, "window": 40, "resume": stored}
    first = llm.evaluate(llama_bundle.path, model=llama_bundle.model, **options)
    torch.manual_seed(1)
    other = type(llama_bundle.model)(llama_bundle.model.config).eval()
    again = llm.evaluate(llama_bundle.path, model=other, **options)
    assert again.scores["eager"] != first.scores["eager"]
    assert again.scores["bundle"] == first.scores["bundle"]


def test_tasks_of_one_name_stay_apart(llama_bundle, files):
    other = files / "other" / "pets.jsonl"
    other.parent.mkdir()
    other.write_text(json.dumps({**QUESTIONS[0], "answer": 1}))
    report = llm.evaluate(llama_bundle.path, tasks=[files / "pets.jsonl", other])
    accuracies = [name for name in report.scores["bundle"] if name.endswith("jsonl accuracy")]
    assert accuracies == [f"{files / 'pets.jsonl'} accuracy", f"{other} accuracy"]


def test_long_question_keeps_its_end(llama_bundle, files):
    end = QUESTIONS[0]
    lines = [{**end, "context": "x" * padding + end["context"]} for padding in (3000, 4000)]
    scores = []
    for line in lines:
        (files / "long.jsonl").write_text(json.dumps(line))
        report = llm.evaluate(llama_bundle.path, tasks=[files / "long.jsonl"], engine="torch")
        scores.append(report.scores)
    assert scores[0] == scores[1]


def test_wrong_sizes_raise(llama_bundle, files):
    with pytest.raises(GenerationError, match="window is 1"):
        llm.evaluate(llama_bundle.path, text=files / "text.txt", window=1)
    with pytest.raises(GenerationError, match="limit is 0"):
        llm.evaluate(llama_bundle.path, text=files / "text.txt", limit=0)
    with pytest.raises(GenerationError, match="model is a int"):
        llm.evaluate(llama_bundle.path, text=files / "text.txt", model=3)


def test_unknown_compression_is_not_reported_as_conversion():
    scores = {"bundle": {"perplexity": 12.5}, "eager": {"perplexity": 10.0}}
    report = EvaluationReport(scores, is_joint=True)
    assert report.differences() == {"conversion and compression": {"perplexity": 2.5}}


def test_compression_and_conversion_are_separated():
    scores = {
        "bundle": {"perplexity": 12.5},
        "compressed": {"perplexity": 12.0},
        "eager": {"perplexity": 10.0},
    }
    report = EvaluationReport(scores)
    assert report.differences() == {
        "conversion": {"perplexity": 0.5},
        "compression": {"perplexity": 2.0},
    }
    assert report.as_dict()["scores"] == scores


def test_task_of_the_harness(tmp_path):
    (tmp_path / "data.jsonl").write_text('{"q": "2 + 2", "options": ["3", "4"], "key": 1}\n')
    task = {
        "task": "sums",
        "output_type": "multiple_choice",
        "dataset_kwargs": {"data_files": {"test": "data.jsonl"}},
        "test_split": "test",
        "doc_to_text": "Question: {{ q }}\nAnswer:",
        "doc_to_choice": "options",
        "doc_to_target": "{{ key }}",
    }
    (tmp_path / "sums.yaml").write_text(json.dumps(task))
    want = Question("Question: 2 + 2\nAnswer:", (" 3", " 4"), 1)
    assert read_task(tmp_path / "sums.yaml") == [want]
    task["doc_to_choice"] = "{{ options }}"
    (tmp_path / "sums.yaml").write_text(json.dumps(task))
    assert read_task(tmp_path / "sums.yaml") == [want]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.jsonl", "no json", "line 1 of .*a.jsonl is invalid: it is not JSON"),
        ("a.jsonl", "[1]", "it is not a JSON object"),
        ("a.jsonl", '{"context": "a"}', "it has no context or no choices"),
        ("a.jsonl", '{"context": "a", "choices": ["b"], "answer": 7}', "the answer 7 is not one"),
        ("a.yaml", "output_type: generate_until", "output_type is not multiple_choice"),
        ("a.yaml", "output_type: multiple_choice", "doc_to_text, doc_to_choice, doc_to_target"),
        ("a.yaml", "a: !function b.c", "cannot be used"),
    ],
)
def test_invalid_task_raises(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(GenerationError, match=message):
        read_task(tmp_path / name)


def test_missing_inputs_raise(llama_bundle, tmp_path):
    with pytest.raises(GenerationError, match="nothing to evaluate"):
        llm.evaluate(llama_bundle.path)
    with pytest.raises(GenerationError, match="no text was found"):
        llm.evaluate(llama_bundle.path, text=tmp_path / "none")
    with pytest.raises(GenerationError, match="no task was found"):
        llm.evaluate(llama_bundle.path, tasks=[tmp_path / "none.jsonl"])
    with pytest.raises(GenerationError, match="unknown engine 'gpu'"):
        llm.evaluate(llama_bundle.path, engine="gpu")


def test_command_prints_the_scores(llama_bundle, files, capsys):
    arguments = ["llm", "eval", str(llama_bundle.path), "--text", str(files / "text.txt")]
    with pytest.raises(SystemExit) as exit_:
        main([*arguments, "--limit", "1", "--window", "32", "--json"])
    assert exit_.value.code == 0
    assert json.loads(capsys.readouterr().out)["scores"]["bundle"]["perplexity"] > 1
