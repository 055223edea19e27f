"""The dashboard of a local cluster answers at the address that a run prints."""

from __future__ import annotations

import re
import urllib.request

from lazy_import import lazy_import

from coreai_torch.fleet.dask_engine import DaskEngine

bokeh = lazy_import("bokeh")
distributed = lazy_import("distributed")


def test_dashboard_of_a_local_cluster_answers():
    assert bokeh.__name__ == "bokeh"
    with DaskEngine(workers=1) as engine:
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/status", engine.dashboard)
        with urllib.request.urlopen(engine.dashboard, timeout=60) as answer:
            assert answer.status == 200
            assert b"Dask Diagnostic UI" in answer.read()
