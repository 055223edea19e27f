"""Parse the seed documents into code blocks.

A fence marked `python` is a program. `python signature` is a signature without a body, which
test_seed_promises compares with the real one; `mlir` is a listing of a module; `{warning}` is
prose.
"""

import re
from dataclasses import dataclass
from pathlib import Path

SEEDS = Path(__file__).parent / "seeds"
DOCUMENTS = sorted(path.stem for path in SEEDS.glob("*.md"))

_FENCE = re.compile(r"^```(?P<mark>[^\n`]+)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """One fence of a document; `number` counts the fences of its mark from 1."""

    document: str
    mark: str
    number: int
    line: int  # number of the first line of code, counted from 1
    text: str

    @property
    def path(self) -> Path:
        return SEEDS / f"{self.document}.md"

    def __str__(self) -> str:
        return f"{self.document}-{self.number}-line{self.line}"


def blocks(document: str, mark: str = "python") -> list[Block]:
    """Return the fences of `document` with exactly this mark, in order."""
    text = (SEEDS / f"{document}.md").read_text()
    found = [match for match in _FENCE.finditer(text) if match["mark"].strip() == mark]
    return [
        Block(document, mark, number, text.count("\n", 0, match.start("text")) + 1, match["text"])
        for number, match in enumerate(found, 1)
    ]


def marks(document: str) -> set[str]:
    return {
        match["mark"].strip() for match in _FENCE.finditer((SEEDS / f"{document}.md").read_text())
    }
