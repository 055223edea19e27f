"""The stored results of `make clients` name their versions, have no failures, and are shown."""

import json
import re

import pytest

from tests.clients import page
from tests.clients.environment import CLIENTS

STORED = json.loads(page.SCORE.read_text())


def test_every_client_has_a_result_of_its_version():
    for client in CLIENTS:
        measured = STORED[client.name]["measured"]
        assert measured[client.name] == client.version
        assert re.fullmatch(r"[0-9a-f]{7,}(-dirty)?", measured["commit"])
        assert {"python", "torch", "coreai-core"} <= measured.keys()


def test_no_client_fails():
    for name, found in STORED.items():
        parts = [found["flow"], found["own tests"]] if "own tests" in found else [found["flow"]]
        for part in parts:
            assert part["passed"] > 0, name
            assert part["failed"] == 0, name


def test_every_path_of_coreai_opt_has_packed_bytes():
    rows = [row for row in STORED["coreai-opt"]["flow"]["rows"] if "asset" in row]
    assert len({row["path"] for row in rows}) == len(rows) > 60
    for row in rows:
        assert row["weights"] - 8 < row["asset"] < row["weights"] + 13_000, row["path"]
        assert "error" in row or "loss" in row, row["path"]


@pytest.mark.stored
def test_page_shows_the_stored_results():
    assert page.section() in page.DOCS.read_text()
