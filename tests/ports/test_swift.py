"""Swift source has the names and types of a program, and no syntax error.

The grammar of `tree-sitter-swift` checks the syntax. A compiler checks the types too if there is
one: Debian 13 has the package `swiftlang`, Debian 12 has none.
"""

from __future__ import annotations

import json
import shutil
import subprocess

import pytest
import torch
from lazy_import import lazy_import
from torch import nn

import coreai_torch
from coreai_torch.cli import main
from coreai_torch.errors import ConversionError
from coreai_torch.swift.identifiers import identifiers, text, type_name

tree_sitter = lazy_import("tree_sitter")
tree_sitter_swift = lazy_import("tree_sitter_swift")


def tree(source):
    language = tree_sitter.Language(tree_sitter_swift.language())
    return tree_sitter.Parser(language).parse(source.encode()).root_node


class Net(nn.Module):
    """Ports with names that are keywords, clash or are no identifiers."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", torch.zeros(2, 3))

    def forward(self, a, b, c):
        self.cache.add_(a)
        return a + self.cache, b + 1, c & True


INPUTS = (torch.rand(2, 3), torch.zeros(3, dtype=torch.int32), torch.ones(4, dtype=torch.bool))


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    path = tmp_path_factory.mktemp("swift") / "my-net 2.aimodel"
    coreai_torch.convert(
        Net(),
        INPUTS,
        input_names=["in", "x.y", "x y"],
        output_names=["default", "1st", "all"],
        state_names=["self"],
        labels={"default": ['say "hi"\n', "back\\slash \\(x)", "Käse"]},
        metadata={"author": "Ada", "model_description": "two\nlines"},
        verify=False,
        output=path,
    )
    return coreai_torch.swift_source(path)


def test_source_has_no_syntax_error(source):
    assert not tree(source).has_error, source


@pytest.mark.skipif(shutil.which("swiftc") is None, reason="swiftc is not installed")
def test_source_compiles(source, tmp_path):
    file = tmp_path / "Net.swift"
    file.write_text(source)
    command = ["swiftc", "-typecheck", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_grammar_finds_a_syntax_error(source):
    assert tree(source.replace("Port(", "Port((", 1)).has_error


def test_source_has_names_types_states_and_labels(source):
    for line in (
        "public enum MyNet2 {",
        "public static let `in` = Port(",
        'name: "x.y", scalarType: .int32,',
        "public static let x_y_2 = Port(",
        "public static let _1st = Port(",
        "public static let all_2 = Port(",
        "public static let _self = Port(",
        "shape: [Size(2), Size(3)])",
        "public var `in`: Tensor<Float>",
        "public var x_y_2: Tensor<Bool>",
        r'"say \"hi\"\u{a}",',
        r'"back\\slash \\(x)",',
        "/// two lines",
        '"author": "Ada",',
    ):
        assert line in source, line


def test_dynamic_sizes_and_dtypes():
    exported = torch.export.export(
        nn.Linear(4, 2).half(),
        (torch.rand(2, 4).half(),),
        dynamic_shapes=({0: torch.export.Dim("n", min=1, max=9)},),
    )
    found = coreai_torch.swift_source(coreai_torch.convert(exported, verify=False), "linear")
    assert "public enum Linear {" in found
    assert "public var input: Tensor<Float16>" in found
    assert 'Size(name: "n", range: 1...9), Size(4)' in found
    assert not tree(found).has_error


@pytest.mark.parametrize(
    ("names", "want"),
    [
        (["a", "a", "a_2"], ["a", "a_2", "a_2_2"]),
        (["class", "Type", "", "é"], ["`class`", "_Type", "_port", "_port_2"]),
        (["0", "a-b", "a.b"], ["_0", "a_b", "a_b_2"]),
    ],
)
def test_identifiers_are_valid_and_unique(names, want):
    assert identifiers(names) == want


def test_names_of_types_and_texts():
    assert [type_name(n) for n in ("net", "3d", "Any", "int8", "---")] == [
        "Net",
        "Model3d",
        "AnyModel",
        "Int8Model",
        "Model",
    ]
    assert text("a\0\u2028") == '"a\\u{0}\\u{2028}"'


def test_command_writes_the_file(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    coreai_torch.convert(nn.ReLU(), (torch.ones(2),), verify=False, output="relu.aimodel")
    for arguments in (["-o", "Relu.swift", "--json"], ["--name", "Other"]):
        with pytest.raises(SystemExit) as exit_info:
            main(["swift", "relu.aimodel", *arguments])
        assert not exit_info.value.code
        out = capsys.readouterr().out
    assert "public enum Other {" in out
    assert "public enum Relu {" in (tmp_path / "Relu.swift").read_text()
    assert json.dumps("relu") in out


def test_a_name_that_is_not_a_string_is_rejected():
    with pytest.raises(ConversionError, match="a Swift type is a string, not 5"):
        coreai_torch.swift_source("net.aimodel", 5)
