"""Content hashes change with everything that a result depends on, and with nothing else."""

from __future__ import annotations

import pytest

from coreai_torch.fleet import content, parse_plan
from coreai_torch.fleet.content import Hasher


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "nets").mkdir()
    (tmp_path / "nets" / "__init__.py").write_text("")
    (tmp_path / "nets" / "layers.py").write_text("from .norms import norm\n")
    (tmp_path / "nets" / "norms.py").write_text("def norm(): return 1\n")
    (tmp_path / "nets" / "other.py").write_text("x = 1\n")
    (tmp_path / "models.py").write_text("from nets import layers\ndef net(): ...\n")
    (tmp_path / "weights.pt").write_bytes(b"abc")
    return tmp_path


def _key(folder, **changes):
    steps = changes.pop("steps", ["convert"])
    limits = changes.pop("limits", {})
    model = {"source": "models.py:net", "checkpoint": "weights.pt", **changes}
    plan = parse_plan({"models": [model], "steps": steps, "limits": limits}, folder=folder)
    return Hasher().keyed(next(plan.tasks())).key


def test_same_content_has_the_same_key(folder):
    assert _key(folder) == _key(folder)


@pytest.mark.parametrize("name", ["models.py", "nets/layers.py", "nets/norms.py", "weights.pt"])
def test_key_changes_with_a_file_that_the_model_uses(folder, name):
    before = _key(folder)
    with (folder / name).open("a") as file:
        file.write("\n# changed")
    assert _key(folder) != before


def test_key_does_not_change_with_other_files_and_limits(folder):
    before = _key(folder)
    (folder / "nets" / "other.py").write_text("x = 2\n")
    assert _key(folder, limits={"seconds": 1, "memory": 1}) == before


def test_key_changes_with_options_of_a_step(folder):
    keys = {_key(folder, steps=[{"bench": {"runs": n}}]) for n in (1, 2)}
    assert len(keys) == 2


def test_key_changes_with_the_version_of_the_package(folder, monkeypatch):
    before = _key(folder)
    monkeypatch.setattr(content, "versions", lambda: ("another",))
    assert _key(folder) != before


def test_module_in_a_package_is_found_and_hashed(folder, monkeypatch):
    monkeypatch.chdir(folder)
    before = _key(folder, source="nets.layers:norm")
    (folder / "nets" / "norms.py").write_text("def norm(): return 2\n")
    assert _key(folder, source="nets.layers:norm") != before


def test_libraries_count_with_their_version(folder, monkeypatch):
    assert Hasher()._source("numpy.linalg:norm", folder)[0].startswith("numpy ")
    (folder / "nets" / "norms.py").write_text("import os\nimport numpy as np\n")
    before = _key(folder)
    content._library_version.cache_clear()
    monkeypatch.setattr(content, "library_version", lambda name: "another")
    after = _key(folder)
    content._library_version.cache_clear()
    assert after != before


def test_key_changes_with_a_module_beside_the_plan_that_a_model_in_a_folder_imports(folder):
    (folder / "nets" / "model.py").write_text("from shared import layers\ndef net(): ...\n")
    (folder / "shared").mkdir()
    (folder / "shared" / "layers.py").write_text("width = 1\n")
    before = _key(folder, source="nets/model.py:net")
    (folder / "shared" / "layers.py").write_text("width = 2\n")
    assert _key(folder, source="nets/model.py:net") != before


@pytest.mark.parametrize("given", ["x=@input.npy", "@input.npy"])
def test_key_changes_with_the_file_of_an_input(folder, given):
    (folder / "input.npy").write_bytes(b"1")
    before = _key(folder, inputs=[given])
    (folder / "input.npy").write_bytes(b"2")
    assert _key(folder, inputs=[given]) != before


def test_source_of_this_package_is_read_once_for_all_tasks(folder, monkeypatch):
    (folder / "models.py").write_text("import coreai_torch.api\nfrom nets import layers\n")
    parsed = []
    names = content._names
    monkeypatch.setattr(content, "_names", lambda *file: parsed.append(file) or names(*file))
    _key(folder)
    assert {file.name for file, _ in parsed} == {
        "models.py",
        "layers.py",
        "norms.py",
        "__init__.py",
    }
    assert len(parsed) == 4
