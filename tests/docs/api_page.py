"""Write docs/api.md and docs/api/*.md: `python -m tests.docs.api_page`.

The docstrings are the only source. docs/api.md lists every name with its first sentence; each page
in docs/api/ names the objects of one module, and mkdocstrings fills it when the site is built.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import coreai_torch

DOCS = Path(__file__).parents[2] / "docs"

# Descriptions of classes of other packages.
DESCRIPTIONS = {
    "MetalParameter": "A position argument of a Metal kernel, from `coreai.authoring`: the name in "
    'the source, its Metal type and the attribute, as in `MetalParameter("id", "uint", '
    '"thread_position_in_grid")`.'
}

# Methods that only torch calls.
OMITTED = {"extra_repr"}

# Returned by other calls: omit the signature of the constructor.
RETURNED = {"Comparator", "Ctx", "Function", "LevelOrderStrategy", "Module", "Program", "Validator"}
RETURNED |= {"LoadedProgram"}
RETURNED |= {
    "llm.GenerationProgram",
    "llm.BundleReport",
    "llm.EvaluationReport",
    "llm.LanguageModel",
}


@dataclass(frozen=True)
class Section:
    """The documented names of one module."""

    title: str
    module: str
    intro: str
    names: tuple[str, ...]
    prefix: str = ""  # if the name alone is ambiguous

    @property
    def file(self) -> str:
        """The file name of the page."""
        return self.title.lower().replace(",", "").replace(" ", "-") + ".md"

    def anchor(self, name: str) -> str:
        """Return the anchor of a name on the page."""
        if name in DESCRIPTIONS:
            return name.lower()
        plain = name.removeprefix(self.prefix)
        path = f"{self.module}.{plain}"
        thing = getattr(import_module(self.module), plain)
        # `report.differences` is a function and, as a path, also the module that defines it.
        hidden = thing.__module__ == path
        return f"{path}.{plain}" if hidden else path

    def text(self, *, in_folder: bool) -> str:
        """Return the introduction, with links that work from the folder of the page."""
        where = "" if self.title == self.module else f"`{self.module}`. "
        return where + (self.intro.replace("](", "](../") if in_folder else self.intro)

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield each name with its object."""
        home = import_module(self.module)
        for name in self.names:
            yield self.prefix + name, getattr(home, name)


FIRST = ("convert", "verify", "lint", "compress", "to_torch", "TorchConverter", "get_decomp_table")
FIRST += ("split", "load_parts")  # in the order in which their examples run
OTHERS = sorted(set(coreai_torch.__all__) - set(FIRST) - {"__version__"}, key=str.lower)

SECTIONS = (
    Section(
        "coreai_torch",
        "coreai_torch",
        "Import these names from the package itself; `__version__` is its version.",
        (*FIRST, *OTHERS),
    ),
    Section(
        "Programs",
        "coreai_torch.asset.program",
        "The methods of converted programs, which are objects of `AIProgram` of "
        "`coreai.authoring`; `str` gives the MLIR.",
        ("Program",),
    ),
    Section(
        "Loaded programs",
        "coreai_torch.asset.loaded",
        "The result of `load`.",
        ("LoadedProgram", "LoadedFunction", "Port"),
    ),
    Section(
        "Composite ops",
        "coreai_torch.composite_ops",
        "Modules that become composites when they are externalized: "
        "[composite ops](composite-ops.md).",
        ("RMSNorm", "RMSNormImpl", "RoPE", "SDPA", "GatherMM", "GatedDeltaUpdate"),
    ),
    Section(
        "Lowering",
        "coreai_torch.lowering",
        "The first argument of a lowering: [custom lowerings](custom-lowerings.md).",
        ("Ctx",),
    ),
    Section(
        "Operands of nodes",
        "coreai_torch._utils",
        "For lowerings of the form `(values_map, node, loc)`.",
        ("get_operand", "get_operands", "print_graph"),
    ),
    Section(
        "Composites by hand",
        "coreai_torch.ir.composite",
        "For a lowering that emits a composite.",
        ("Composite",),
    ),
    Section(
        "Verification",
        "coreai_torch.verification",
        "Arguments and results of `verify`: [verify](verify.md).",
        ("TrialPlan", "Verdict", "Trial", "OutputError", "Divergence")
        + ("CompressionEffect", "WeightChange", "OutputChange"),
    ),
    Section(
        "Contents, differences, hazards",
        "coreai_torch.report",
        "Information about a program, an asset or the path of one: [reports](report.md).",
        ("summarize", "Summary", "FunctionSummary", "PortSummary")
        + ("differences", "Difference", "hazards", "html_page", "write_page"),
    ),
    Section(
        "Half precision",
        "coreai_torch.precision",
        "For programs that are staged by hand, and the report: [half precision](precision.md).",
        ("to_half", "PrecisionReport", "Island"),
    ),
    Section(
        "Lint",
        "coreai_torch.linting",
        "The results and rules of `lint`: [lint](lint.md).",
        ("Finding", "Rule", "rules_for"),
    ),
    Section(
        "Placement",
        "coreai_torch.targets.placing",
        "An estimate of the unit that runs each op: [placement](placement.md). "
        "`placement` is a name of `coreai_torch.targets` too.",
        ("placement", "Placement", "PlacedOp", "Border", "Change", "PlacementRule"),
    ),
    Section(
        "Supported ops",
        "coreai_torch.supported_ops",
        "The data of `coreai-torch ops` and of [the op table](ops.md).",
        ("supported", "Op"),
    ),
    Section(
        "Programs in torch",
        "coreai_torch.interpreter",
        "The result of `to_torch`: [a second opinion](second-opinion.md).",
        ("Module", "Function", "Event", "evaluate", "known_ops"),
    ),
    Section(
        "Kernels",
        "coreai_torch.kernels",
        "Run Metal source on the CPU: [Metal kernels](metal-kernels.md).",
        ("emulated", "run_source"),
    ),
    Section(
        "Recognition",
        "coreai_torch.recognition",
        "The report of `TorchConverter(recognize=True)`: [recognition](recognition.md).",
        ("RecognitionReport",),
    ),
    Section(
        "Compression",
        "coreai_torch.compression",
        "The report of `compress`, and layers with compressed weights: "
        "[compression](compression.md).",
        ("CompressionReport", "CompressedWeight", "Sensitivity", "SensitivityRow", "Spec")
        + ("WeightDequantizeModule", "PalettizeModule")
        + ("ScaledPalettizeModule", "SparseModule", "ActivationQuantizeModule")
        + ("ActivationDequantizeModule", "wrap_for_parametrization"),
    ),
    Section(
        "Generation",
        "coreai_torch.llm",
        "Bundles of [language models](language-models.md), and decoders with their cache as state: "
        "[generation](generation.md).",
        ("export", "check", "BundleReport", "load", "LanguageModel", "evaluate")
        + ("EvaluationReport", "convert", "GenerationProgram", "Generator"),
        prefix="llm.",
    ),
    Section(
        "Models of transformers",
        "coreai_torch.integrations.transformers",
        "The backend `coreai` of `transformers.exporters`: [guide](transformers-guide.md).",
        ("CoreAIExporter", "CoreAIConfig", "CoreAIModelRunner", "CoreAIQuantizer", "generate")
        + ("register",),
    ),
    Section(
        "Validator",
        "coreai_torch.debugging.validator",
        "Find the first op that produces a NaN: [debugging](debugging.md).",
        ("create_validator_for_exported_program", "create_validator_for_coreai_program")
        + ("Validator", "ValidationResult"),
    ),
    Section(
        "Comparator",
        "coreai_torch.debugging.comparator",
        "Find the first ops in which two programs differ.",
        ("create_comparator_for_programs", "Comparator", "ComparisonResult"),
    ),
    Section(
        "Inspector",
        "coreai_torch.debugging.inspector",
        "Intermediate values of a program.",
        ("CoreAIInspector", "TorchInspector"),
    ),
    Section(
        "Graph differences",
        "coreai_torch.debugging.graph_diff",
        "Compare two programs op by op.",
        ("compute_exported_program_diff", "compute_coreai_program_diff", "write_diff", "GraphDiff"),
    ),
    Section(
        "Benchmarker",
        "coreai_torch.debugging.benchmarker",
        "Time programs, modules and ops.",
        ("benchmark_coreai_program", "BenchmarkResult", "ModuleTiming", "OperationTiming"),
    ),
    Section(
        "Search strategies",
        "coreai_torch.debugging.search_strategy",
        "The order in which validator and comparator examine ops.",
        ("LevelOrderStrategy",),
    ),
    Section(
        "Saved values",
        "coreai_torch.debugging.torch_utils",
        "Intermediate values of an exported program, saved to files.",
        ("save_intermediates", "load_intermediates"),
    ),
    Section(
        "Debug info",
        "coreai_torch.debugging.debug_info",
        "Remove the recorded origin of ops.",
        ("strip_debug_info",),
    ),
)


def pages() -> Iterator[tuple[Path, str]]:
    """Yield each page with its text."""
    yield DOCS / "api.md", _joined(_index())
    for section in SECTIONS:
        yield DOCS / "api" / section.file, _joined(_page(section))


def _joined(lines: Iterator[str]) -> str:
    return "\n".join(lines).rstrip() + "\n"


def _index() -> Iterator[str]:
    yield from ("# API", "")
    yield (
        "Generated by `python -m tests.docs.api_page` from docstrings: do not edit. Each name "
        "links to its signature and description on the site, which `make docs` builds. See "
        "[errors](errors.md) for the error classes, [the command line](command-line.md) for the "
        "commands and [the dialect](dialect.md) for the functions that lowerings call."
    )
    for section in SECTIONS:
        yield from ("", f"## {section.title}", "", section.text(in_folder=False), "")
        yield from ("| name | description |", "|---|---|")
        for name, thing in section.objects():
            link = f"[`{name}`](api/{section.file}#{section.anchor(name)})"
            yield f"| {link} | {summary(DESCRIPTIONS.get(name) or own_doc(thing))} |"


def _page(section: Section) -> Iterator[str]:
    yield from (f"# {section.title}", "", section.text(in_folder=True))
    for name, thing in section.objects():
        if name in DESCRIPTIONS:
            yield from ("", f"## {name}", "", DESCRIPTIONS[name])
            continue
        yield from ("", f"::: {section.anchor(name)}")
        if inspect.isclass(thing) and name not in RETURNED:
            yield from ("    options:", "      merge_init_into_class: true")


def summary(doc: str) -> str:
    """Return the first sentence of a docstring, for a cell of a table."""
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return re.split(r"(?<=[.:]) (?=[A-Z])", paragraph)[0].replace("|", "\\|")


def own_doc(thing: Any) -> str:
    """Return the docstring of the object itself, not of a base class; may be empty."""
    return inspect.cleandoc(thing.__doc__ or "")


def parts(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods, properties and classes that the class itself defines."""
    for name, member in vars(cls).items():
        if (name.startswith("_") and name != "__call__") or name in OMITTED:
            continue
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if (
            inspect.isfunction(function)
            or inspect.isclass(function)
            or isinstance(function, property)
        ):
            yield name, function


def main() -> None:
    """Write the pages, and delete those of sections that no longer exist."""
    made = dict(pages())
    (DOCS / "api").mkdir(exist_ok=True)
    for stale in set((DOCS / "api").glob("*.md")) - made.keys():
        stale.unlink()
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
