"""The page of a run, and the comparison of two runs."""

from __future__ import annotations

import json
import re
import shutil

import pytest
from lazy_import import lazy_import

from coreai_torch.cli import main
from coreai_torch.fleet import compare, write_report
from coreai_torch.fleet.columns import COLUMNS
from coreai_torch.fleet.results import Writer

playwright = lazy_import("playwright.sync_api")
pyarrow = lazy_import("pyarrow")
BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)


def _row(name, verdict="pass", **more):
    empty = {column: "" if kind is str else None for column, kind in COLUMNS.items()}
    return {**empty, "id": name, "verdict": verdict, "seconds": 2.0, **more}


def _write(folder, rows):
    assert pyarrow.__name__
    with Writer(folder) as writer:
        for row in rows:
            writer.write(row)
    return folder


def _many(count):
    for number in range(count):
        bad = number % 10 == 0
        cause = f"no lowering for aten.op{number % 50}" if bad else ""
        yield _row(
            f"model{number}[batch={number % 4}]",
            "error" if bad else "pass",
            cause=cause,
            message=f"{cause}\n  at line 7" if bad else "",
            precision=("float32", "float16")[number % 2],
            max_error=None if bad else 1e-6 * (number + 1),
            seconds=1 + number % 17,
            peak_mb=300.0 + number % 100,
        )


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("fleet")
    _write(folder / "out", _many(10_000))
    return write_report(folder / "out", folder / "report.html")


def test_page_has_totals_groups_and_histograms(page):
    text = page.read_text()
    assert '<dt>error</dt><dd class="bad">1,000</dd>' in text
    assert '<dt>pass</dt><dd class="good">9,000</dd>' in text
    groups = re.findall(r'<span class="number">(\d+)</span><span class="bad">error</span>', text)
    assert groups == ["200"] * 5
    assert text.count("<svg") == 3
    assert page.stat().st_size < 4 << 20


def test_page_makes_no_network_requests(page):
    text = page.read_text()
    assert "default-src 'none'" in text
    assert not re.search(r"(?:src|href)=\"https?:", text)


def test_names_of_models_cannot_become_markup(tmp_path):
    bad = "<script>alert(1)</script>"
    _write(tmp_path / "out", [_row(bad, "error", cause=bad, message=bad)])
    text = write_report(tmp_path / "out", tmp_path / "a.html").read_text()
    assert bad not in text


@pytest.mark.skipif(BROWSER is None, reason="no browser is installed")
def test_table_of_10000_rows_is_filtered_searched_and_sorted(page):
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        shown = browser.new_page()
        problems = []
        shown.on("pageerror", lambda error: problems.append(str(error)))
        shown.goto(page.as_uri())
        rows, count = shown.locator("#rows tr"), shown.locator("#count")
        playwright.expect(rows).to_have_count(200)
        shown.select_option("select[data-column=verdict]", "error")
        playwright.expect(count).to_have_text("1,000 of 10,000 tasks")
        shown.fill("#search", "aten.op30")
        playwright.expect(count).to_have_text("200 of 10,000 tasks")
        shown.fill("#search", "")
        shown.select_option("select[data-column=verdict]", "")
        shown.click("[data-sort=seconds]")
        shown.click("[data-sort=seconds]")
        playwright.expect(rows.first.locator("td").nth(6)).to_have_text("17")
        shown.fill("#search", "line 7")
        playwright.expect(count).to_have_text("1,000 of 10,000 tasks")
        rows.first.locator("summary").click()
        playwright.expect(rows.first.locator("pre")).to_contain_text("line 7")
        shown.fill("#search", "")
        shown.click("#more")
        playwright.expect(rows).to_have_count(400)
        assert problems == []
        browser.close()


def test_page_folds_small_groups_and_counts_those_it_leaves_out(tmp_path):
    rows = [_row(f"t{n}", "error", cause=f"cause {n}") for n in range(120)]
    rows += [_row("u", "error", cause="cause 0")]
    text = write_report(_write(tmp_path / "out", rows), tmp_path / "a.html").read_text()
    assert "<summary>105 more causes</summary>" in text
    assert "and 20 more causes of 20 tasks" in text
    assert re.search(r'<span class="number">2</span>.{0,60}cause 0', text)


BEFORE = [
    _row("same"),
    _row("breaks"),
    _row("gets fixed", "crash", cause="SIGSEGV"),
    _row("other reason", "error", cause="one"),
    _row("slower", seconds=2.0),
    _row("a bit slower", seconds=2.0),
    _row("gone"),
]
AFTER = [
    _row("same"),
    _row("breaks", "fail", cause="the numbers differ"),
    _row("gets fixed"),
    _row("other reason", "error", cause="two"),
    _row("slower", seconds=9.0),
    _row("a bit slower", seconds=2.5),
    _row("added"),
]


@pytest.fixture
def runs(tmp_path):
    return _write(tmp_path / "before", BEFORE), _write(tmp_path / "after", AFTER)


def test_comparison_finds_every_kind_of_change(runs):
    found = compare(*runs)
    assert [c.id for c in found.broke] == ["breaks"]
    assert [c.id for c in found.fixed] == ["gets fixed"]
    assert [(c.before, c.after) for c in found.changed] == [("error: one", "error: two")]
    assert [(c.id, c.before, c.after) for c in found.slower] == [("slower", "2.0 s", "9.0 s")]
    assert (found.faster, found.new, found.missing) == ((), ("added",), ("gone",))


def test_report_shows_differences_to_an_earlier_run(runs, tmp_path):
    text = write_report(runs[1], tmp_path / "a.html", before=runs[0]).read_text()
    for title in ("Broke", "Fixed", "Slower", "Fails for another reason"):
        assert f'<span class="number">1</span> {title}' in text
    assert "Missing: gone" in text
    assert '<option value="broke">broke</option>' in text  # the table can show them all


def _code(capsys, *arguments):
    with pytest.raises(SystemExit) as ended:
        main(["fleet", *map(str, arguments)])
    return ended.value.code or 0, capsys.readouterr()


def test_diff_command_exits_with_1_if_a_task_broke(runs, capsys):
    before, after = runs
    code, printed = _code(capsys, "diff", before, after)
    assert code == 1
    assert "broke   breaks: pass -> fail: the numbers differ" in printed.out
    assert _code(capsys, "diff", before, before)[0] == 0
    assert _code(capsys, "diff", before, after / "results.parquet", "--json")[0] == 1


def test_strict_diff_exits_with_1_for_slower_and_missing_tasks(tmp_path, capsys):
    before = _write(tmp_path / "a", [_row("x"), _row("y")])
    after = _write(tmp_path / "b", [_row("x", seconds=20.0)])
    assert _code(capsys, "diff", before, after)[0] == 0
    assert _code(capsys, "diff", before, after, "--strict")[0] == 1


def test_report_command_writes_the_page(runs, tmp_path, capsys):
    page = tmp_path / "page.html"
    code, printed = _code(capsys, "report", runs[1], "-o", page, "--before", runs[0], "--json")
    assert (code, json.loads(printed.out)["output"]) == (0, str(page))
    assert page.is_file()


def test_run_command_reports_wrong_plans_as_usage_errors(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "plan.json").write_text('{"models": [], "step": ["convert"]}')
    code, printed = _code(capsys, "run", "plan.json", "-o", "out")
    assert code == 2
    assert "did you mean 'steps'?" in printed.err
    (tmp_path / "plan.json").write_text('{"models": ["a:b"], "steps": ["convert"]}')
    options = ["--workers", "1", "--scheduler", "tcp://127.0.0.1:1"]
    assert _code(capsys, "run", "plan.json", "-o", "out", *options)[0] == 2


def test_run_command_without_tasks_to_do(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "calls.py").write_text("def f(task):\n    return {'ops': 3}\n")
    plan = {"models": ["a", "b"], "steps": [{"call": "calls:f"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, printed = _code(capsys, "run", "plan.json", "-o", "out", "--json")
    assert (code, json.loads(printed.out)["verdicts"]) == (0, {"pass": 2})
    code, printed = _code(capsys, "run", "plan.json", "-o", "out")
    assert (code, printed.out) == (0, "out: 2 tasks, 2 were done before: none ran\n")


def test_run_command_prints_the_most_frequent_causes(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    source = "def f(task):\n    raise ValueError(f'no weights of size {len(task.model)}')\n"
    (tmp_path / "calls.py").write_text(source)
    plan = {"models": ["a", "bb", "cc"], "steps": [{"call": "calls:f"}]}
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    code, printed = _code(capsys, "run", "plan.json", "-o", "out")
    assert code == 1
    assert printed.out.splitlines() == [
        "out: 3 tasks: 3 error",
        "     2 error: ValueError: no weights of size 2",
        "       bb, cc",
        "     1 error: ValueError: no weights of size 1",
        "       a",
        "  see   coreai-torch fleet report out -o report.html",
    ]
    code, printed = _code(capsys, "run", "plan.json", "-o", "out", "--retry", "failed", "--json")
    assert json.loads(printed.out)["causes"][0] == {
        "verdict": "error",
        "cause": "ValueError: no weights of size 2",
        "tasks": 2,
        "ids": ["bb", "cc"],
    }
