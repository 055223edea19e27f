"""Check that docs/api.md is up to date, complete and documented."""

from __future__ import annotations

import difflib
import inspect

import pytest

import coreai_torch
from tests.docs import api_page

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


def test_page_is_up_to_date():
    written = []
    api_page.main(written.append)
    stored, generated = api_page.PAGE.read_text().splitlines(), written[0].splitlines()
    stale = list(difflib.unified_diff(stored, generated, lineterm="", n=0))
    assert not stale, "\n".join(["run: python -m tests.docs.api_page", *stale])


def test_every_public_name_is_on_the_page():
    headings = {
        line.lstrip("# ") for line in api_page.PAGE.read_text().splitlines() if line[:1] == "#"
    }
    assert set(PUBLIC) <= headings
    assert set(coreai_torch.__all__) - {"__version__"} <= headings


def test_every_name_has_a_docstring():
    # The docstring of a module's class describes `forward`.
    missing = [n for n, obj in documented() if not obj.__doc__ and not n.endswith(".forward")]
    assert missing == []


@pytest.mark.parametrize(
    ("doc", "lines"),
    [
        ("Says.\n\nArgs:\n    x: one\n        and more.", ["Says.", "", "- `x`: one"]),
        ("Options:\n  - a: one\n  - b: two", ["Options:", "", "  - a: one", "  - b: two"]),
    ],
)
def test_docstring_sections_become_lists(doc, lines):
    assert list(api_page.markdown(doc))[: len(lines)] == lines
