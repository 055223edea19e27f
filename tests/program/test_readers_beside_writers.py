"""An asset that other processes replace can be read at any time."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.asset import reading, replacing, resources
from coreai_torch.asset.replacing import exchange
from coreai_torch.asset.resources import workshop_prefix

SAVES = 60  # of each writer
WRITERS, READERS = (1.0, 2.0, 3.0), 2


def program(value):
    """Return a program whose weights are the value, and whose metadata names it."""
    model = nn.Linear(256, 256, bias=False).eval()
    with torch.no_grad():
        model.weight.fill_(value)
    x = torch.ones(1, 256)
    return coreai_torch.convert(model, (x,), verify=False, metadata={"license": str(value)})


def write(job):
    path, value = job
    made = program(value)
    for _ in range(SAVES):
        made.save_asset(path)
    return SAVES


def values(found):
    """Return the different numbers in the large constants of a program."""
    ops = found.functions["main"].body.ops
    large = [op.attributes["value"] for op in ops if op.name == "coreai.constant"]
    return {float(x) for one in large if one.numel() > 1000 for x in (one.min(), one.max())}


def read(path):
    """Read the asset until the file `done` exists; return the problems and the number of reads."""
    problems, count = [], 0
    while not (path.parent / "done").exists():
        count += 1
        try:
            found = values(reading.read(path))
            if len(found) != 1 or not found <= set(WRITERS):
                problems.append(f"weights {found}")
            license_ = coreai_torch.read_metadata(path)["license"]
            if float(license_) not in WRITERS:
                problems.append(f"license {license_}")
        except Exception as error:
            problems.append(f"{type(error).__name__}: {error}")
    return problems, count


class Child:
    """A forked process that sends the result of a function, and the text of its error."""

    def __init__(self, function, job, seconds):
        context = multiprocessing.get_context("fork")
        self.seconds = seconds
        self.pipe, end = context.Pipe(duplex=False)
        self.process = context.Process(target=_work, args=(function, job, end), daemon=True)
        self.process.start()
        end.close()

    def result(self):
        if not self.pipe.poll(self.seconds):
            self.process.kill()
            return None, "it took too long"
        found = self.pipe.recv()
        self.process.join()
        return found


def _work(function, job, pipe):
    try:
        pipe.send((function(job), ""))
    except Exception as error:
        pipe.send((None, f"{type(error).__name__}: {error}"))


@pytest.mark.skipif(sys.platform != "linux", reason="forks")
def test_no_read_fails_and_no_write_fails(tmp_path):
    path = tmp_path / "net.aimodel"
    program(1.0).save_asset(path)
    readers = [Child(read, path, 120) for _ in range(READERS)]
    writers = [Child(write, (path, value), 120) for value in WRITERS]
    for writer in writers:
        writer.pipe.poll(100)
    (path.parent / "done").touch()
    for writer in writers:
        assert writer.result() == (SAVES, "")
    for reader in readers:
        reader.pipe.poll(20)
        (problems, count), failure = reader.result()
        assert not failure
        assert count > 20
        assert not problems, f"{len(problems)} of {count}: {problems[:3]}"
    assert sorted(os.listdir(tmp_path)) == ["done", "net.aimodel"]


@pytest.fixture
def two(tmp_path):
    """Return the paths of two assets; other.aimodel is to replace net.aimodel."""
    paths = tmp_path / "net.aimodel", tmp_path / "other.aimodel"
    for value, path in zip((1.0, 2.0), paths, strict=True):
        program(value).save_asset(path)
    return paths


def test_asset_replaced_between_hash_and_bytecode_is_read_again(two, monkeypatch):
    path, other = two
    hash_of, calls = resources.hash_of, []

    def late(file):
        calls.append(file)
        if len(calls) == 1:
            assert exchange(path, other)
        return hash_of(file)

    monkeypatch.setattr(resources, "hash_of", late)
    assert values(reading.read(path)) == {2.0}
    assert len(calls) > 1


def test_asset_replaced_between_blobs_and_program_is_read_again(two, monkeypatch):
    path, other = two
    mapped, calls = resources.mapped, []

    def early(file):
        found = mapped(file)
        calls.append(file)
        if len(calls) == 1:
            shutil.rmtree(path)
            other.rename(path)
        return found

    monkeypatch.setattr(resources, "mapped", early)
    assert values(reading.read(path)) == {2.0}
    assert len(calls) > 1


def test_asset_that_two_renames_replace_is_waited_for(two, monkeypatch):
    path, other = two
    workshop = path.with_name(f"{workshop_prefix(path)}1")
    workshop.mkdir()
    path.rename(workshop / "replaced")
    monkeypatch.setattr(time, "sleep", lambda seconds: path.exists() or other.rename(path))
    assert values(reading.read(path)) == {2.0}


def test_missing_and_damaged_assets_fail_at_once(two, monkeypatch):
    path, _ = two
    monkeypatch.setattr(time, "sleep", lambda seconds: pytest.fail("waits"))
    (path / "main.hash").write_bytes(bytes(32))
    with pytest.raises(errors.AssetError, match="its hash differs"):
        reading.read(path)
    with pytest.raises(FileNotFoundError):
        reading.read(Path("missing.aimodel"))
    (path / "main.mlirb").unlink()
    with pytest.raises(errors.AssetError, match=r"main\.mlirb is missing"):
        reading.read(path)


@pytest.mark.parametrize("one", ["folder", "file", "link"])
def test_exchange_swaps_any_two(tmp_path, one):
    first, second = tmp_path / "first", tmp_path / "second"
    second.mkdir()
    (second / "inside").touch()
    if one == "folder":
        first.mkdir()
    elif one == "file":
        first.write_text("text")
    else:
        first.symlink_to(tmp_path)
    kind = (first.is_symlink(), first.is_file())
    if not exchange(first, second):
        pytest.skip("this file system cannot exchange")
    assert (first / "inside").is_file()
    assert (second.is_symlink(), second.is_file()) == kind
    with pytest.raises(FileNotFoundError):
        exchange(first, tmp_path / "missing")


@pytest.mark.parametrize("number", [38, 22, 95])
def test_system_without_the_exchange_renames_twice(tmp_path, monkeypatch, number):
    def fail(one, other):
        import ctypes

        ctypes.set_errno(number)
        return -1

    monkeypatch.setattr("coreai_torch.asset.replacing._system_call", lambda: fail)
    path = tmp_path / "folder"
    path.mkdir()
    (path / "old").touch()
    kind = replacing.Kind("anything", lambda folder: [])
    with replacing.replacing(path, kind) as new:
        new.mkdir()
        (new / "new").touch()
    assert os.listdir(tmp_path) == ["folder"]
    assert os.listdir(path) == ["new"]
