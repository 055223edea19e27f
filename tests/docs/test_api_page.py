"""Check that the pages of the API are up to date, complete and documented."""

from __future__ import annotations

import inspect
import pkgutil
import re

import pytest

import coreai_torch
from tests.docs import api_page

EXAMPLE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)

# Public names: removing one breaks the code of users.
PUBLIC = [
    "convert",
    "verify",
    "compress",
    "to_torch",
    "get_decomp_table",
    "generate_composite_decl",
    "TorchConverter",
    "TorchConverter.Mode",
    "TorchConverter.add_exported_program",
    "TorchConverter.add_pytorch_module",
    "TorchConverter.to_coreai",
    "TorchConverter.clear",
    "TorchConverter.register_torch_lowering",
    "TorchConverter.register_custom_kernels",
    "ExternalizeSpec",
    "TorchMetalKernel",
    "TorchMetalKernel.__call__",
    "MetalParameter",
    "Program",
    "Program.optimize",
    "Program.save_asset",
    "get_operand",
    "get_operands",
    "RMSNorm",
    "RMSNormImpl",
    "RoPE",
    "SDPA",
    "GatherMM",
    "GatedDeltaUpdate",
    "create_validator_for_exported_program",
    "create_validator_for_coreai_program",
    "Validator.check_for_nans",
    "Validator.check_for_infs",
    "Validator.check",
    "create_comparator_for_programs",
    "Comparator.compare_with_tolerance",
    "CoreAIInspector",
    "CoreAIInspector.get_intermediates_for_ops",
    "compute_exported_program_diff",
    "compute_coreai_program_diff",
    "write_diff",
    "benchmark_coreai_program",
    "BenchmarkResult.write_summary",
    "BenchmarkResult.get_module_timings",
    "LevelOrderStrategy.bisection",
    "LevelOrderStrategy.top_down",
    "LevelOrderStrategy.auto",
    "save_intermediates",
    "load_intermediates",
    "strip_debug_info",
]


def documented():
    """Yield every name on the page with its object, including methods and properties."""
    for section in api_page.SECTIONS:
        for name, thing in section.objects():
            yield name, thing
            if inspect.isclass(thing) and name not in api_page.DESCRIPTIONS:
                for part, member in api_page.parts(thing):
                    yield f"{name}.{part}", member


@pytest.mark.stored
def test_pages_are_up_to_date():
    made = dict(api_page.pages())
    stale = [
        path.name for path, text in made.items() if not path.exists() or path.read_text() != text
    ]
    stale += [path.name for path in (api_page.DOCS / "api").glob("*.md") if path not in made]
    assert not stale, "run: python -m tests.docs.api_page"


def test_every_public_name_is_on_a_page():
    names = {name for name, _ in documented()}
    assert set(PUBLIC) <= names
    assert set(coreai_torch.__all__) - {"__version__"} <= names


def test_every_name_is_where_the_page_says():
    missing = []
    for section in api_page.SECTIONS:
        for name, thing in section.objects():
            if name not in api_page.DESCRIPTIONS:
                found = pkgutil.resolve_name(section.anchor(name))
                missing += [] if found is thing else [name]
    assert not missing


def test_examples_of_docstrings_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    ran = 0
    for name, thing in documented():
        for code in EXAMPLE.findall(api_page.own_doc(thing)):
            exec(compile(code, name, "exec"), namespace)
            ran += 1
    assert ran > 10


def test_every_name_has_a_docstring():
    # The docstring of a module's class describes `forward`.
    missing = [n for n, obj in documented() if not obj.__doc__ and not n.endswith(".forward")]
    assert missing == []


@pytest.mark.parametrize(
    ("doc", "sentence"),
    [
        ("Says one thing.\n\nArgs:\n    x: one.", "Says one thing."),
        ("Says one thing\non two lines. And more.", "Says one thing on two lines."),
        ("Takes `a | b`.", "Takes `a \\| b`."),
    ],
)
def test_summary_is_the_first_sentence(doc, sentence):
    assert api_page.summary(doc) == sentence
