"""Run the commands of docs/command-line.md in order and check their output."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
from PIL import Image

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text()
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    for line in block.splitlines()
]

_ROW = r"^\| `(\w+)` \| ((?:`\w+`[^|]*)+) \|$"
KEYS = {
    command: set(re.findall(r"`(\w+)`", re.sub(r"\(.*?\)|; with .*|, `export`.*", "", keys)))
    for command, keys in re.findall(_ROW, PAGE, re.MULTILINE)
}


def test_every_command_on_the_page_works(shell, tmp_path):
    (model,) = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    (tmp_path / "models.py").write_text(model)
    pixels = np.zeros((16, 16, 3), np.uint8)
    Image.fromarray(pixels).save(tmp_path / "photo.png")
    assert len(COMMANDS) == 14
    for command in COMMANDS:
        script, *arguments = shlex.split(command)
        assert script == "coreai-torch"
        result = shell(*arguments)
        assert result.code == 0, f"{command}\n{result.out}{result.err}"
        if arguments[0] in (
            "check",
            "compress",
            "lint",
            "place",
            "inspect",
            "report",
            "doctor",
            "strip",
            "diff",
            "ops",
            "run",
            "bench",
        ):
            keys = set(shell(*arguments, "--json").json) - {"ok"}
            assert keys == KEYS[arguments[0]], arguments[0]
    assert np.load(tmp_path / "scores.npz")["scores"].shape == (1, 10)
