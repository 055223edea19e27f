"""docs/api.md is what the code says, holds every name that is promised, and each is explained."""

from __future__ import annotations

import difflib
import inspect

import pytest

import coreai_torch
from tests.docs import api_page

# What users are promised: a name that goes missing here breaks their code.
PROMISED = [
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
    """Every name on the page with what it stands for, methods and properties included."""
    for section in api_page.SECTIONS:
        for name, thing in section.objects():
            yield name, thing
            if inspect.isclass(thing) and name not in api_page.TOLD:
                for part, held in api_page.parts(thing):
                    yield f"{name}.{part}", held


def test_the_page_is_up_to_date():
    written = []
    api_page.main(written.append)
    held, made = api_page.PAGE.read_text().splitlines(), written[0].splitlines()
    stale = list(difflib.unified_diff(held, made, lineterm="", n=0))
    assert not stale, "\n".join(["run: python -m tests.docs.api_page", *stale])


def test_every_promised_name_is_on_the_page():
    headings = {
        line.lstrip("# ") for line in api_page.PAGE.read_text().splitlines() if line[:1] == "#"
    }
    assert set(PROMISED) <= headings
    assert set(coreai_torch.__all__) - {"__version__"} <= headings


def test_every_name_has_a_docstring_of_its_own():
    # `forward` is told by its class, which says what shapes and options mean.
    silent = [n for n, held in documented() if not held.__doc__ and not n.endswith(".forward")]
    assert silent == []


@pytest.mark.parametrize(
    ("doc", "lines"),
    [
        ("Says.\n\nArgs:\n    x: one\n        and more.", ["Says.", "", "- `x`: one"]),
        ("Options:\n  - a: one\n  - b: two", ["Options:", "", "  - a: one", "  - b: two"]),
    ],
)
def test_docstrings_become_lists(doc, lines):
    assert list(api_page.markdown(doc))[: len(lines)] == lines
