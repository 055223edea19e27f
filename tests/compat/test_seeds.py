"""Every program in the seed documents runs as written."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from compat.documents import DOCUMENTS, Block, blocks, marks

TESTS = Path(__file__).parents[1]
# One worker runs all blocks of a document (with `--dist loadgroup`; otherwise each runs it again).
PROGRAMS = [
    pytest.param(block, id=str(block), marks=pytest.mark.xdist_group(document))
    for document in DOCUMENTS
    for block in blocks(document)
]

# The output of a block is part of the document.
PRINTS = {
    ("composite_ops_guide", 5): ["Outputs match: True"],
    ("custom_op_lowering", 6): ["coreai.graph @main", '"x"', '"y"', '"result"'],
}


@dataclass(frozen=True)
class Played:
    """Result of a document: a record for each finished block, and the process result."""

    records: list[dict[str, str | None]]
    returncode: int
    stderr: str


@pytest.fixture(scope="module")
def play(tmp_path_factory):
    played: dict[str, Played] = {}

    def once(document: str) -> Played:
        if document not in played:
            played[document] = _play(document, tmp_path_factory.mktemp(document) / "record")
        return played[document]

    return once


def _play(document: str, record: Path) -> Played:
    ran = subprocess.run(
        [sys.executable, "-m", "compat.play", document, record],
        cwd=TESTS,
        capture_output=True,
        text=True,
        timeout=300,
    )
    lines = record.read_text().splitlines() if record.exists() else []
    return Played([json.loads(line) for line in lines], ran.returncode, ran.stderr)


@pytest.mark.parametrize("block", PROGRAMS)
def test_block_runs_as_written(play, block: Block):
    played = play(block.document)
    ended = len(played.records)
    if block.number > ended + 1:
        pytest.fail(f"not reached: block {ended + 1} ended the process")
    if block.number == ended + 1:
        pytest.fail(f"the process ended with {played.returncode}\n{played.stderr}")
    record = played.records[block.number - 1]
    assert record["error"] is None, record["error"]
    for expected in PRINTS.get((block.document, block.number), []):
        assert expected in record["printed"]


def test_every_fence_has_a_known_mark():
    assert {mark for document in DOCUMENTS for mark in marks(document)} == {
        "python",
        "python signature",
        "mlir",
        "{warning}",
    }


def test_documents_are_complete():
    counts = {document: len(blocks(document)) for document in DOCUMENTS}
    assert counts == {
        "composite_ops_guide": 5,
        "conversion_workflows": 3,
        "custom_op_lowering": 7,
        "externalization": 2,
        "torch_converter_reference": 14,
    }
