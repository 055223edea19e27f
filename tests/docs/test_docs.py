"""The code of every page in docs/ runs, in its order, one namespace and one folder for each page.

A Python block that starts with `# models.py` is also that file. In `sh` blocks every line is a
`coreai-torch` command; it leaves with 0, or with what `# leaves with 1` behind it says.
"""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from coreai_torch.cli import main

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(python|sh)\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"# (\w+\.py)\n")
COMMAND = re.compile(r"coreai-torch (?P<arguments>.*?)(?:  # leaves with (?P<code>\d+))?")

# Its commands run in tests/cli/test_command_line_page.py, which also reads what they answer.
SHELL_RUNS_ELSEWHERE = {"command-line.md"}


def blocks(page):
    """Each block with the blank lines before it, so that a traceback names the page's own line."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield found[1], "\n" * text.count("\n", 0, found.start(2)) + found[2]


PAGES = {page.name: page for page in sorted(DOCS.glob("*.md")) if any(blocks(page))}


def test_the_guides_are_found():
    assert {"composite-ops.md", "externalization.md"} <= set(PAGES)


def run_python(block, page, namespace):
    if found := FILE.match(block.lstrip()):
        Path(found[1]).write_text(block.lstrip())
        sys.modules.pop(Path(found[1]).stem, None)  # that of another page
    exec(compile(block, str(page), "exec"), namespace)


def run_shell(block, capsys):
    for line in block.replace("\\\n", " ").strip().splitlines():
        found = COMMAND.fullmatch(line)
        assert found, f"{line!r} is no command of ours; what is not run stands in a text block"
        with pytest.raises(SystemExit) as left:
            main(shlex.split(found["arguments"]))
        said = capsys.readouterr()
        assert (left.value.code or 0) == int(found["code"] or 0), f"{line}\n{said.out}{said.err}"


@pytest.mark.parametrize("name", PAGES)
def test_the_code_of_the_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {"__name__": "__main__"}
    for language, block in blocks(PAGES[name]):
        if language == "python":
            run_python(block, PAGES[name], namespace)
        elif name not in SHELL_RUNS_ELSEWHERE:
            run_shell(block, capsys)
