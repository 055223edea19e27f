"""Only `numerics` has a tolerance table, and only `ir.types` a narrowing table."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FLOATS = {"torch.float32", "torch.float16", "torch.bfloat16"}


def dictionaries(folder):
    """Yield each dictionary literal with its file, as pairs of source texts."""
    for path in sorted((ROOT / folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Dict):
                pairs = zip(node.keys, node.values, strict=True)
                yield (
                    str(path.relative_to(ROOT)),
                    {ast.unparse(k): ast.unparse(v) for k, v in pairs if k is not None},
                )


def is_number(text):
    try:
        return isinstance(ast.literal_eval(text), float)
    except ValueError:
        return False


@pytest.mark.parametrize("folder", ["coreai_torch", "tests"])
def test_no_other_tolerance_table(folder):
    tables = [
        (file, pairs)
        for file, pairs in dictionaries(folder)
        if any(is_number(value) for key, value in pairs.items() if key in FLOATS)
    ]
    assert tables == []


def test_one_narrowing_table():
    tables = [
        file
        for file, pairs in dictionaries("coreai_torch")
        if pairs.get("torch.int64") == "torch.int32"
    ]
    assert tables == ["coreai_torch/ir/types.py"]
