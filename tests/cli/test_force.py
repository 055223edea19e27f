"""`--force`: commands replace what the package wrote, and nothing else without it."""

from __future__ import annotations

import pytest

NET = ["models.py:net", "-i", "x=f32[2,4]"]


@pytest.fixture
def occupied(tmp_path):
    """Return a function that makes a folder with a user's file at a path."""

    def make(name):
        (tmp_path / name).mkdir()
        (tmp_path / name / "thesis.txt").write_text("years of work")
        return tmp_path / name / "thesis.txt"

    return make


@pytest.mark.parametrize(
    ("command", "output"),
    [
        (["convert", *NET, "--no-verify"], "net.aimodel"),
        (["compress", *NET, "--scheme", "int8", "--least", "1", "--no-verify"], "net.aimodel"),
        (["split", *NET, "--parts", "1", "--verify", "none"], "net-parts"),
        (["strip", "other.aimodel"], "net.aimodel"),
    ],
)
def test_folder_of_the_user_is_replaced_with_force_only(shell, occupied, command, output):
    if command[0] == "strip":
        assert shell("convert", *NET, "--no-verify", "-o", "other.aimodel").code == 0
    kept = occupied(output)
    refused = shell(*command, "-o", output, "--json")
    assert refused.code == 2
    assert refused.json["error"]["code"] == "CAT121"
    assert "exists and is not" in refused.json["error"]["message"]
    assert "--force" in refused.json["error"]["hint"]
    assert kept.read_text() == "years of work"
    assert shell(*command, "-o", output, "--force").code == 0
    assert not kept.exists()
    assert shell(*command, "-o", output).code == 0
