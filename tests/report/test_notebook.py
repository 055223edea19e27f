"""The display of programs in a notebook (HTML) and in a terminal (rich text)."""

from __future__ import annotations

import io
import re

import pytest
import torch
from lazy_import import lazy_import
from report.pages import attacked
from rich.console import Console
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.summary import summary_of
from coreai_torch.report import summarize

formatters = lazy_import("IPython.core.formatters")


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        self.count.add_(1)
        return torch.layer_norm(x, (4,))


@pytest.fixture(scope="module")
def converted():
    exported = torch.export.export(Counter().eval(), (torch.ones(2, 4),))
    decomposed = exported.run_decompositions(get_decomp_table())
    names = {"input_names": ["[bold]x"], "output_names": ["<i>y"]}
    return TorchConverter().add_exported_program(decomposed, **names).to_coreai()


def printed(value):
    stream = io.StringIO()
    Console(file=stream, width=120).print(value)
    return stream.getvalue()


def test_a_notebook_shows_a_program_as_html(converted):
    data, _ = formatters.DisplayFormatter().format(converted)
    page = data["text/html"]
    for part in (
        "main",
        "[bold]x",
        "f32[2, 4]",
        "&lt;i&gt;y",
        "state",
        "layer_norm 1",
        "constants",
    ):
        assert part in page
    assert "<i>y" not in page
    assert "text/plain" in data


def test_rich_prints_the_summary_and_escapes_names(converted):
    text = printed(converted)
    assert text.startswith("Core AI program, 1 function, ")
    assert re.search(r"main +input +\[bold\]x +f32\[2, 4\]", text)
    assert re.search(r"main +state +b_count +f32\[1\]", text)
    assert "composites  layer_norm 1" in text


def test_the_summary_of_an_asset_shows_its_size_on_disk(converted, tmp_path):
    converted.save_asset(tmp_path / "net.aimodel")
    summary = summarize(tmp_path / "net.aimodel")
    assert "on disk" in formatters.DisplayFormatter().format(summary)[0]["text/html"]
    assert "on disk" in printed(summary)


def test_the_display_changes_after_optimize(converted):
    before = printed(converted)
    converted.optimize()
    assert printed(converted) != before


def test_names_are_escaped():
    summary = summary_of(attacked(), None)
    page = summary._repr_html_()
    tags = set(re.findall(r"<\s*([a-zA-Z]\w*)", page))
    own = "div style strong h3 code span table thead tbody tr th td"
    assert tags == set(own.split())
    assert page.count("<style>") == 1
    assert not set(page) & set("\u2028\u2029\x00\u202e\ud800")
    text = printed(summary)
    assert not set(text) & set("\u2028\u2029\x00\u202e\ud800")
    assert "window.pwned=5" in text
