"""Outputs replace what the package wrote, and nothing else."""

from __future__ import annotations

import os

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.asset.program import stripped
from coreai_torch.fleet.results import RESULTS, RUN, Writer


def net():
    return nn.Linear(3, 2).eval(), (torch.ones(1, 3),)


@pytest.fixture(scope="module")
def asset(tmp_path_factory):
    path = tmp_path_factory.mktemp("made") / "made.aimodel"
    coreai_torch.convert(*net(), verify=False, output=path)
    return path


def convert(path, **options):
    coreai_torch.convert(*net(), verify=False, output=path, **options)


def save(path, **options):
    coreai_torch.convert(*net(), verify=False).save_asset(path, **options)


def split(path, **options):
    coreai_torch.split(*net(), parts=1, verify=False, output=path, **options)


def folder(path):
    path.mkdir()
    (path / "thesis.txt").write_text("years of work")


def file(path):
    path.write_text("years of work")


def link_to_folder(path):
    folder(path.with_name("linked"))
    path.symlink_to(path.with_name("linked"))


def asset_with_notes(path):
    convert(path)
    (path / "thesis.txt").write_text("years of work")


def split_with_notes(path):
    split(path)
    (path / "thesis.txt").write_text("years of work")


def part_with_notes(path):
    split(path)
    (path / "part-1.aimodel" / "thesis.txt").write_text("years of work")


def manifest_of_others(path):
    path.mkdir()
    (path / "manifest.json").write_text('{"name": "an app", "icons": []}')


def content(path):
    """Return the text of a file, or of each file in a folder."""
    if path.is_file():
        return path.read_bytes()
    return {
        str(one.relative_to(path)): one.read_bytes() for one in path.rglob("*.*") if one.is_file()
    }


@pytest.mark.parametrize("write", [convert, save])
@pytest.mark.parametrize("occupy", [folder, file, link_to_folder, asset_with_notes])
def test_only_an_asset_is_replaced(tmp_path, write, occupy):
    path = tmp_path / "net.aimodel"
    occupy(path)
    before, names = content(path), sorted(os.listdir(tmp_path))
    with pytest.raises(errors.OverwriteError, match=r"net\.aimodel exists and") as raised:
        write(path)
    assert isinstance(raised.value, FileExistsError)
    assert raised.value.code == "CAT121"
    assert content(path) == before
    assert sorted(os.listdir(tmp_path)) == names
    write(path, overwrite=True)
    assert sorted(os.listdir(path)) == ["main.hash", "main.mlirb", "metadata.json"]


@pytest.mark.parametrize("write", [convert, save])
def test_empty_folders_and_assets_are_replaced(tmp_path, write):
    path = tmp_path / "net.aimodel"
    path.mkdir()
    write(path)
    (path / ".DS_Store").write_text("")
    (path / "main.mlirb").write_text("damaged")
    write(path)
    assert sorted(os.listdir(path)) == ["main.hash", "main.mlirb", "metadata.json"]
    assert (path / "main.mlirb").stat().st_size > 100


def test_folder_made_during_the_conversion_is_kept(tmp_path, monkeypatch):
    path = tmp_path / "net.aimodel"
    from coreai_torch.asset import program as saving

    written = saving.Program._write

    def beside(self, new, *args):
        folder(path)
        written(self, new, *args)

    monkeypatch.setenv("COREAI_TORCH_FORK", "0")
    monkeypatch.setattr(saving.Program, "_write", beside)
    with pytest.raises(errors.OverwriteError):
        save(path)
    assert content(path) == {"thesis.txt": b"years of work"}
    assert os.listdir(tmp_path) == ["net.aimodel"]


def test_strip_replaces_assets_only(tmp_path, asset):
    target = tmp_path / "small.aimodel"
    folder(target)
    with pytest.raises(errors.OverwriteError):
        stripped(asset, target)
    assert content(target) == {"thesis.txt": b"years of work"}
    stripped(asset, target, overwrite=True)
    assert (target / "main.mlirb").is_file()
    stripped(target, target)


@pytest.mark.parametrize(
    "occupy", [folder, file, manifest_of_others, split_with_notes, part_with_notes, link_to_folder]
)
def test_only_a_split_model_is_replaced(tmp_path, occupy):
    path = tmp_path / "net-parts"
    occupy(path)
    before = content(path)
    with pytest.raises(errors.OverwriteError, match="net-parts exists and"):
        split(path)
    assert content(path) == before
    split(path, overwrite=True)
    split(path)
    assert sorted(os.listdir(path)) == ["manifest.json", "part-1.aimodel"]


@pytest.mark.parametrize("name", [RUN, RESULTS, ".notes.new", "lock"])
def test_fleet_runs_keep_the_files_of_others(tmp_path, name):
    if name == RESULTS:
        pyarrow = pytest.importorskip("pyarrow")
        from pyarrow import parquet

        parquet.write_table(pyarrow.table({"id": ["mine"], "more": [1]}), tmp_path / name)
    else:
        (tmp_path / name).write_text('{"mine": 1}')
    before = (tmp_path / name).read_bytes()
    if name in (RUN, RESULTS):
        with pytest.raises(errors.OverwriteError, match="was not written by a fleet run"):
            Writer(tmp_path).__enter__()
    else:
        with Writer(tmp_path):
            pass
    assert (tmp_path / name).read_bytes() == before
