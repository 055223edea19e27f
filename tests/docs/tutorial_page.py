"""Run examples/tutorial.ipynb and write docs/tutorial.md: `python -m tests.docs.tutorial_page`.

The notebook is the source. Running it stores the printed text of each code cell in it; the page
shows the same cells and text.
"""

from __future__ import annotations

import ast
import io
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NOTEBOOK = ROOT / "examples" / "tutorial.ipynb"
PAGE = ROOT / "docs" / "tutorial.md"


def cells() -> list[dict[str, Any]]:
    """Return the cells of the notebook."""
    return list(json.loads(NOTEBOOK.read_text())["cells"])


def run(given: list[dict[str, Any]]) -> Iterator[str]:
    """Run the code cells in one namespace, and yield what each of them prints."""
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for number, cell in enumerate(given):
        if cell["cell_type"] == "code":
            printed = io.StringIO()
            tree = ast.parse("".join(cell["source"]), f"cell {number}")
            with redirect_stdout(printed):
                exec(compile(tree, f"cell {number}", "exec"), namespace)
            yield printed.getvalue()


def page(given: list[dict[str, Any]]) -> str:
    """Return the page: the text of the cells, their code, and what it printed."""
    parts = []
    for cell in given:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source.replace("](../docs/", "]("))
            continue
        parts.append(f"```python\n{source}\n```")
        printed = "".join("".join(one.get("text", [])) for one in cell["outputs"]).rstrip()
        if printed:
            parts.append(f"```text\n{printed}\n```")
    return "\n\n".join(parts) + "\n"


def main() -> None:
    """Run the notebook, store its output and write the page."""
    notebook = json.loads(NOTEBOOK.read_text())
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        printed = list(run(notebook["cells"]))
        os.chdir(before)
    for count, (cell, text) in enumerate(zip(code, printed, strict=True), 1):
        stream = {"name": "stdout", "output_type": "stream", "text": text.splitlines(True)}
        cell["execution_count"] = count
        cell["outputs"] = [stream] if text else []
    NOTEBOOK.write_text(json.dumps(notebook, indent=1, ensure_ascii=False) + "\n")
    PAGE.write_text(page(notebook["cells"]))


if __name__ == "__main__":
    main()
