"""Write docs/api.md from signatures and docstrings: `python -m tests.docs.api_page`."""

from __future__ import annotations

import dataclasses
import enum
import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any

import coreai_torch

PAGE = Path(__file__).parents[2] / "docs" / "api.md"
WIDTH = 96

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

    def objects(self) -> Iterator[tuple[str, Any]]:
        """Yield each name with its object."""
        home = import_module(self.module)
        for name in self.names:
            yield self.prefix + name, getattr(home, name)


FIRST = ("convert", "verify", "lint", "compress", "to_torch", "TorchConverter", "get_decomp_table")
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
        "Supported ops",
        "coreai_torch.supported_ops",
        "The data of `coreai-torch ops` and of [the op table](ops.md).",
        ("supported", "Op"),
    ),
    Section(
        "Programs in torch",
        "coreai_torch.interpreter",
        "The result of `to_torch`: [a second opinion](second-opinion.md).",
        ("Module", "Function", "Event", "known_ops"),
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


def page() -> Iterator[str]:
    """Yield the lines of the page."""
    yield "# API"
    yield ""
    yield (
        "Generated by `python -m tests.docs.api_page` from signatures and docstrings: do not edit. "
        "See [errors](errors.md) for the error classes and [the command line](command-line.md) for "
        "the commands."
    )
    for section in SECTIONS:
        yield from ("", f"## {section.title}", "")
        where = "" if section.title == section.module else f"`{section.module}`. "
        yield where + section.intro
        for name, thing in section.objects():
            yield from _entry(name, thing, "###")


def _entry(name: str, thing: Any, level: str) -> Iterator[str]:
    yield from ("", f"{level} {name}")
    if name not in RETURNED:
        yield from _signature(name, thing)
    if text := list(markdown(DESCRIPTIONS.get(name) or own_doc(thing))):
        yield from ("", *text)
    if inspect.isclass(thing) and name not in DESCRIPTIONS:
        yield from _attributes(thing)
        for part, member in parts(thing):
            if not isinstance(member, property):
                yield from _entry(f"{name}.{part}", member, "####")


def _attributes(cls: type) -> Iterator[str]:
    """Yield properties, and fields that have a comment."""
    lines = list(_fields(cls))
    for name, member in parts(cls):
        if isinstance(member, property):
            typed = _annotation(inspect.signature(member.fget).return_annotation)
            lines.append(f"- `{name}: {typed}`: {' '.join(own_doc(member).split())}")
    if lines:
        yield from ("", *lines)


def _fields(cls: type) -> Iterator[str]:
    if dataclasses.is_dataclass(cls):
        names = {field.name for field in dataclasses.fields(cls)}
        for found in re.finditer(r"^    (\w+): .*?  # (.*)$", inspect.getsource(cls), re.MULTILINE):
            if found[1] in names:
                yield f"- `{found[1]}`: {found[2]}"


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


def _signature(name: str, thing: Any) -> Iterator[str]:
    if isinstance(thing, type) and issubclass(thing, enum.Enum):
        yield from ("", "```text", " | ".join(f"{name}.{one.name}" for one in thing), "```")
    else:
        yield from ("", "```text", *_wrapped(name, inspect.signature(thing)), "```")


def _wrapped(name: str, signature: inspect.Signature) -> Iterator[str]:
    given = [p for p in signature.parameters.values() if p.name not in ("self", "cls")]
    listed = list(_listed(given))
    end = "" if inspect.Signature.empty is signature.return_annotation else _returned(signature)
    whole = f"{name}({', '.join(listed)}){end}"
    if len(whole) <= WIDTH:
        yield whole
        return
    yield f"{name}("
    yield from (f"    {one}," for one in listed)
    yield f"){end}"


def _listed(given: list[inspect.Parameter]) -> Iterator[str]:
    starred = False
    for one in given:
        starred = starred or one.kind is inspect.Parameter.VAR_POSITIONAL
        if one.kind is inspect.Parameter.KEYWORD_ONLY and not starred:
            starred = True
            yield "*"
        stars = {one.VAR_POSITIONAL: "*", one.VAR_KEYWORD: "**"}.get(one.kind, "")
        typed = "" if one.annotation is one.empty else f": {_annotation(one.annotation)}"
        equals = " = " if typed else "="
        default = "" if one.default is one.empty else equals + _default(one.default)
        yield f"{stars}{one.name}{typed}{default}"


def _default(value: Any) -> str:
    """Return a default as source code, without the address of a function."""
    if isinstance(value, enum.Enum):
        return str(value)
    made = getattr(value, "__qualname__", None) or repr(value)
    return "..." if made == "<factory>" else made


def _annotation(value: Any) -> str:
    if isinstance(value, str):
        return value
    return value.__name__ if isinstance(value, type) else str(value).replace("typing.", "")


def _returned(signature: inspect.Signature) -> str:
    found = signature.return_annotation
    return (
        "" if found is signature.empty or found in (None, "None") else f" -> {_annotation(found)}"
    )


def markdown(doc: str) -> Iterator[str]:
    """Convert a Google-style docstring to Markdown; sections become lists."""
    listing = in_arguments = False
    before = ""
    for line in doc.splitlines():
        in_arguments = line == "Args:" or (in_arguments and (not line or line.startswith("    ")))
        if line == "Args:":
            continue
        made = _argument(line) if in_arguments else line
        if _is_item(made) and before and not listing:
            yield ""
        listing = _is_item(made) or (listing and made.startswith("  "))
        before = made
        yield made


def _argument(line: str) -> str:
    """Convert `    name: what` of a section to a list item."""
    return re.sub(r"^    (\*{0,2}\w+): ", r"- `\1`: ", line)


def _is_item(line: str) -> bool:
    return re.match(r"\s*- ", line) is not None


def main(write: Callable[[str], object] = PAGE.write_text) -> None:
    """Write the page."""
    write("\n".join(page()).rstrip() + "\n")


if __name__ == "__main__":
    main()
