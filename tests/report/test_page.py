"""The page of a report: data, escaped text, content security policy, times by module."""

from __future__ import annotations

import base64
import hashlib
import json
import re

import pytest
import torch
from report.pages import (
    EVERY,
    F32,
    HOSTILE,
    attacked,
    failed_verdict,
    function,
    layered,
    op,
    passed_verdict,
    program,
    timing,
)
from torch import nn

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.asset.markup import element, script_data, shown
from coreai_torch.asset.reading import Block, Type, _unescaped, read
from coreai_torch.report import html_page, write_page
from coreai_torch.report.graph_data import graph_data, type_text
from coreai_torch.report.html_page import page_of
from coreai_torch.report.times import Times

DATA = re.compile(r'<script type="application/json" id="data">(.*?)</script>', re.DOTALL)


def data_of(page):
    (found,) = DATA.findall(page)
    return json.loads(found)


def resolved(data, row):
    """Return an op of the data with strings in place of their numbers."""
    names = ("op", "module", "node", "target", "file", "attributes", "value")
    return {k: data["strings"][v] if k in names else v for k, v in row.items()}


def test_ops_have_operands_types_module_and_source():
    data = graph_data(layered(2, 3), {})
    (main, norm) = data["functions"]
    ops = [resolved(data, row) for row in main["ops"]]
    assert [o["op"] for o in ops[:4]] == ["constant", "batch_matmul", "invoke", "sin"]
    assert ops[0]["bytes"] == 16 * 16 * 4
    assert ops[1]["operands"] == [0, 1]
    assert ops[1]["module"] == "encoder.layer.0.dense"
    assert (ops[1]["file"], ops[1]["line"]) == ("/models/net.py", 1)
    assert (ops[1]["node"], ops[1]["target"]) == ("linear_0", "aten.linear.default")
    assert data["functions"][ops[2]["calls"]] is norm
    assert data["strings"][norm["composite"]] == "norm"
    assert ops[3]["attributes"] == "step=1"


def test_an_op_without_a_place_omits_its_keys():
    data = graph_data(program(function("main", [op("sin", (0,), (1,), (F32,))])), {})
    row = data["functions"][0]["ops"][0]
    assert row.keys() == {"id", "op", "types", "results", "operands"}


def test_ops_of_regions_have_their_parent():
    inner = Block((), (), (op("sin", (0,), (2,), (F32,)), op("yield", (2,))))
    other = Block((), (), (op("cos", (0,), (3,), (F32,)), op("yield", (3,))))
    choice = op("if", (0,), (4,), (F32,), regions=(inner, other))
    data = graph_data(program(function("main", [op("abs", (0,), (1,), (F32,)), choice])), {})
    rows = data["functions"][0]["ops"]
    found = [(resolved(data, r)["op"], r.get("parent"), r.get("region", 0)) for r in rows]
    assert found == [
        ("abs", None, 0),
        ("if", None, 0),
        ("sin", 1, 0),
        ("yield", 1, 0),
        ("cos", 1, 1),
        ("yield", 1, 1),
        ("output", None, 0),
    ]


@pytest.mark.parametrize(
    ("type_", "text"),
    [
        (Type("tensor", (1, -1, 64), "f16"), "f16[1, ?, 64]"),
        (Type("tensor", (), "si32"), "si32[]"),
        (Type("handle", (2,), "f32"), "handle f32[2]"),
        (Type("token"), "token"),
    ],
    ids=str,
)
def test_type_text(type_, text):
    assert type_text(type_) == text


@pytest.mark.parametrize("name", [*HOSTILE, EVERY], ids=range(len(HOSTILE) + 1))
def test_names_are_escaped_in_scripts_and_elements(name):
    text = script_data({"name": name})
    assert not re.search("[<>&\u2028\u2029\x00\u202e]", text)
    assert text.isascii()
    assert json.loads(text) == {"name": name}
    markup = element("p", name, title=name)
    assert re.fullmatch(r'<p title="[^<>"]*">[^<>"]*</p>', markup)
    assert shown(name).isprintable()


def test_invisible_characters_are_shown_as_escapes():
    assert shown("a\u2028\x00\u202eb\U000e0041") == "a\\u2028\\u0000\\u202eb\\U000e0041"
    assert shown("größe 数") == "größe 数"


def test_hostile_names_add_no_elements_to_the_page():
    read_ = attacked()
    page = page_of(read_, EVERY, 1, failed_verdict(), timing(read_))
    tags = set(re.findall(r"<\s*/?\s*([a-zA-Z]+)", DATA.sub("", page).split("<script>")[0]))
    assert not tags & {"img", "iframe", "object", "script", "link", "form"}
    assert page.count("<script") == 3
    assert page.count("<!--") == 0, "all marks of the template are filled, and none was added"
    assert "window.pwned" in page
    assert "onerror" not in "".join(re.findall(r"<\w+[^>]*>", DATA.sub("", page))).replace(
        "onerror=&#x27;", ""
    )
    assert shown(EVERY) in data_of(page)["strings"]


def test_the_policy_allows_only_the_scripts_and_styles_of_the_page():
    page = page_of(layered(1, 2), "net")
    (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', page)
    assert policy.startswith("default-src 'none'; ")
    for kind, tag in (("script-src", "script"), ("style-src", "style")):
        texts = re.findall(rf"<{tag}>(.*?)</{tag}>", page, re.DOTALL)
        digests = [base64.b64encode(hashlib.sha256(t.encode()).digest()).decode() for t in texts]
        assert f"{kind} " + " ".join(f"'sha256-{digest}'" for digest in digests) in policy
    assert "http://" not in page.replace("http://www.w3.org/", "")
    assert "https://" not in page
    markup = re.sub(r"<script>.*?</script>", "", page, flags=re.DOTALL)
    assert not re.search(r'\sstyle="|\son\w+="', markup), "the policy would forbid these"


def test_the_same_program_gives_the_same_page():
    assert page_of(layered(3, 3), "net") == page_of(layered(3, 3), "net")


def test_sections_depend_on_what_was_given():
    read_ = layered(2, 3)
    bare = page_of(read_, "net")
    assert 'id="verification"' not in bare
    assert 'id="time"' not in bare
    assert "not checked" in bare
    full = page_of(read_, "net", 2048, passed_verdict(), timing(read_))
    assert "matches torch in 1 call" in full
    assert "A call takes 20 ms, the median of 3 calls" in full
    assert "Timed entry point: <code>main</code>" in full
    assert "2.0 kB" in full
    failed = page_of(read_, "net", 1, failed_verdict())
    assert "first op that diverges" in failed
    assert "Find it in the graph" in failed


def test_calls_of_one_graph_share_its_time():
    read_ = layered(2, 3)  # two calls of `norm`, whose op took a millisecond in total
    times = Times(read_, timing(read_))
    assert sum(1 for o in read_.functions["main"].body.ops if o.name == "coreai.invoke") == 2
    spent = {part.name: part.milliseconds for part in times.by_module(24)}
    assert spent == {
        "encoder.layer.0.dense": pytest.approx(1.0),
        "encoder.layer.0, own ops": pytest.approx(1.5),
        "encoder.layer.1.dense": pytest.approx(1.0),
        "encoder.layer.1, own ops": pytest.approx(1.5),
    }


class Named(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(4, 4)})

    def forward(self, x):
        return next(iter(self.layers.values()))(x)


def converted(model, *args, **names):
    exported = torch.export.export(model.eval(), args).run_decompositions(get_decomp_table())
    debug = TorchConverter(TorchConverter.Mode.DEBUG)
    return debug.add_exported_program(exported, **names).to_coreai()


def test_names_of_a_converted_model_reach_the_page(tmp_path):
    name = "größe '<img src=x onerror=pwn()>'"
    made = converted(Named(name), torch.ones(2, 4), input_names=["<b>x</b>"])
    modules = {o.place.module for o in read(made).functions["main"].body.ops}
    assert f"layers.{name}" in modules, "MLIR prints the bytes of an umlaut in hex"
    strings = data_of(html_page(made))["strings"]
    assert f"layers.{name}" in strings
    assert "<b>x</b>" in strings
    assert __file__ in strings, "the line of the model"
    assert any("linear.py:" in s for s in strings), "the lines of torch around it"
    asset = tmp_path / "named.aimodel"
    made.save_asset(asset)
    path = write_page(tmp_path / "deep" / "named.html", asset)
    assert "<title>named.aimodel</title>" in path.read_text()
    assert [p.name for p in path.parent.iterdir()] == ["named.html"]


def test_hex_escapes_of_mlir_are_decoded():
    assert _unescaped(r"a\22b\\c\E2\80\A8") == 'a"b\\c\u2028'
    assert _unescaped("plain") == "plain"


def test_large_constants_are_not_read():
    made = converted(Named("linear"), torch.ones(2, 4))
    values = [
        "value" in o.attributes
        for o in read(made, largest=16).functions["main"].body.ops
        if o.name == "coreai.constant" and o.types[0].shape == (4, 4)
    ]
    assert values == [False]
    assert all("value" in o.attributes for o in constants(read(made)))


def constants(program_):
    return [o for f in program_.functions.values() for o in f.body.ops if o.name.endswith("stant")]
