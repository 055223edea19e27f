"""Run the code of every page in docs/, in order, with one namespace and one folder per page.

A Python block that starts with `# models.py` is also written to that file. Every line of an `sh`
block is a `coreai-torch` command; it must exit with 0, or with the code in a trailing comment such
as `# exits with 1`.
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
COMMAND = re.compile(r"coreai-torch (?P<arguments>.*?)(?:  # exits with (?P<code>\d+))?")

# tests/cli/test_command_line_page.py runs the commands of this page and checks their output.
SHELL_RUNS_ELSEWHERE = {"command-line.md"}


def blocks(page):
    """Yield each block, padded with blank lines so that a traceback has the line of the page."""
    text = page.read_text()
    for found in BLOCK.finditer(text):
        yield found[1], "\n" * text.count("\n", 0, found.start(2)) + found[2]


# Pages without tutorial.md, whose notebook tests/docs/test_tutorial_page.py runs.
PAGES = {
    page.name: page
    for page in sorted(DOCS.glob("*.md"))
    if any(blocks(page)) and page.name != "tutorial.md"
}


def test_guides_are_found():
    assert {"composite-ops.md", "externalization.md"} <= set(PAGES)


def run_python(block, page, namespace):
    if found := FILE.match(block.lstrip()):
        Path(found[1]).write_text(block.lstrip())
        sys.modules.pop(Path(found[1]).stem, None)  # imported by another page
    exec(compile(block, str(page), "exec"), namespace)


def run_shell(block, capsys):
    for line in block.replace("\\\n", " ").strip().splitlines():
        found = COMMAND.fullmatch(line)
        assert found, f"{line!r} is not a coreai-torch command; use a text block"
        with pytest.raises(SystemExit) as exit_info:
            main(shlex.split(found["arguments"]))
        captured = capsys.readouterr()
        assert (exit_info.value.code or 0) == int(found["code"] or 0), (
            f"{line}\n{captured.out}{captured.err}"
        )


@pytest.mark.parametrize("name", PAGES)
def test_code_of_page_runs(name, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    namespace = {"__name__": "__main__"}
    for language, block in blocks(PAGES[name]):
        if language == "python":
            run_python(block, PAGES[name], namespace)
        elif name not in SHELL_RUNS_ELSEWHERE:
            run_shell(block, capsys)
