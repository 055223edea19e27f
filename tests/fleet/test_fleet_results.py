"""Results are written once each, also if the writer is killed at any point."""

from __future__ import annotations

import os

import pytest
from lazy_import import lazy_import

from coreai_torch.errors import PlanError
from coreai_torch.fleet import read_rows, results
from coreai_torch.fleet.columns import COLUMNS
from coreai_torch.fleet.results import Writer

pyarrow_parquet = lazy_import("pyarrow.parquet")


def _row(name, verdict="pass", **more):
    empty = {column: "" if kind is str else None for column, kind in COLUMNS.items()}
    return {**empty, "id": name, "verdict": verdict, **more}


def _names(folder):
    return sorted(row["id"] for row in results.iterate(folder))


def test_rows_are_merged_into_one_file(tmp_path):
    with Writer(tmp_path, batch=3) as writer:
        for number in range(10):
            writer.write(_row(f"t{number}", seconds=0.5, seed=number))
    table = pyarrow_parquet.read_table(tmp_path / "results.parquet")
    assert table.num_rows == 10
    assert table.column_names == list(COLUMNS)
    assert table["seed"].to_pylist() == list(range(10))
    assert [path.name for path in (tmp_path / "parts").glob("part-*")] == []


def test_later_row_of_a_task_replaces_the_earlier_one(tmp_path):
    for verdict in ("crash", "pass"):
        with Writer(tmp_path) as writer:
            writer.write(_row("a", verdict))
            writer.write(_row("b"))
    assert [(row["id"], row["verdict"]) for row in read_rows(tmp_path)] == [
        ("a", "pass"),
        ("b", "pass"),
    ]
    assert pyarrow_parquet.read_metadata(tmp_path / "results.parquet").num_rows == 2


def _killed_after(tmp_path, names, monkeypatch, function):
    """Write rows in a child process that ends inside `function`."""
    if (pid := os.fork()) == 0:
        if function:
            monkeypatch.setattr(results, function, lambda *a, **k: os._exit(0))
        writer = Writer(tmp_path, batch=4)
        writer.__enter__()
        for name in names:
            writer.write(_row(name))
        if function == "_merge":
            writer.__exit__(None, None, None)
        os._exit(0)
    os.waitpid(pid, 0)


@pytest.mark.parametrize("function", [None, "_write_parquet", "_merge", "_remove_obsolete"])
@pytest.mark.parametrize("count", [1, 4, 10])
def test_no_row_is_lost_or_twice_if_the_writer_is_killed(tmp_path, monkeypatch, count, function):
    assert pyarrow_parquet.__name__ == "pyarrow.parquet"  # imported before the fork
    names = [f"t{number}" for number in range(count)]
    stopped_early = {"_write_parquet": names[:4], "_remove_obsolete": []}
    _killed_after(tmp_path, names, monkeypatch, function)
    written = stopped_early.get(function, names)
    with Writer(tmp_path, batch=4) as writer:
        done = _names(tmp_path)
        assert done == sorted(written)
        for name in names:
            if name not in done:
                writer.write(_row(name))
    assert _names(tmp_path) == sorted(names)
    assert pyarrow_parquet.read_metadata(tmp_path / "results.parquet").num_rows == count


def test_kill_between_merging_and_removing_the_parts_counts_rows_once(tmp_path, monkeypatch):
    remove = results._remove_obsolete
    with Writer(tmp_path, batch=2) as writer:
        for number in range(5):
            writer.write(_row(f"t{number}"))
        monkeypatch.setattr(results, "_remove_obsolete", lambda folder: None)
    assert list((tmp_path / "parts").glob("part-*"))
    assert _names(tmp_path) == [f"t{number}" for number in range(5)]
    monkeypatch.setattr(results, "_remove_obsolete", remove)
    with Writer(tmp_path) as writer:
        writer.write(_row("t5"))
    assert _names(tmp_path) == [f"t{number}" for number in range(6)]


def test_incomplete_last_line_of_the_journal_is_dropped(tmp_path, monkeypatch):
    _killed_after(tmp_path, ["a", "b"], monkeypatch, None)
    journal = tmp_path / "parts" / "journal-1.jsonl"
    with journal.open("ab") as file:
        file.write(b'{"id": "c", "verd')
    with Writer(tmp_path) as writer:
        writer.write(_row("c"))
    assert _names(tmp_path) == ["a", "b", "c"]


def test_without_pyarrow_the_journal_keeps_all_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(results, "parquet", lambda: None)
    with Writer(tmp_path, batch=2) as writer:
        for name in "abcde":
            writer.write(_row(name))
    assert _names(tmp_path) == list("abcde")
    monkeypatch.undo()
    with Writer(tmp_path):
        pass
    assert pyarrow_parquet.read_metadata(tmp_path / "results.parquet").num_rows == 5


def test_results_of_a_version_with_fewer_columns_are_continued(tmp_path, monkeypatch):
    older = {name: kind for name, kind in COLUMNS.items() if name != "environment"}
    monkeypatch.setattr(results, "COLUMNS", older)
    with Writer(tmp_path) as writer:
        writer.write(_row("a"))
    monkeypatch.undo()
    assert "environment" not in pyarrow_parquet.read_schema(tmp_path / "results.parquet").names
    with Writer(tmp_path) as writer:
        writer.write(_row("b", environment="torch-2.15"))
    assert [row["environment"] for row in read_rows(tmp_path)] == ["", "torch-2.15"]


def test_second_writer_of_a_folder_is_rejected(tmp_path):
    with Writer(tmp_path), pytest.raises(PlanError, match="another run writes"):
        Writer(tmp_path).__enter__()


def test_folder_without_results_is_rejected(tmp_path):
    with pytest.raises(PlanError, match="has no results"):
        read_rows(tmp_path)


@pytest.mark.parametrize("content", [b"junk", b""])
def test_unreadable_results_are_rejected(tmp_path, content):
    (tmp_path / "results.parquet").write_bytes(content)
    with pytest.raises(PlanError, match=r"results\.parquet cannot be read"):
        read_rows(tmp_path)
    with pytest.raises(PlanError, match=r"results\.parquet cannot be read"), Writer(tmp_path):
        pass


def test_parquet_file_of_another_program_is_rejected(tmp_path):
    table = pyarrow_parquet.read_table.__globals__["pa"].table({"x": [1]})
    pyarrow_parquet.write_table(table, tmp_path / "x.parquet")
    with pytest.raises(PlanError, match="has no column 'id'"):
        read_rows(tmp_path / "x.parquet")


def test_results_need_a_folder(tmp_path):
    (tmp_path / "out").touch()
    with pytest.raises(PlanError, match="out is a file"), Writer(tmp_path / "out"):
        pass
