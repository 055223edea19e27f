"""`TorchConverter`: stage exported programs and convert them into one Core AI program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from pathlib import Path
from typing import Any

import torch

from .asset.metadata import FORM, SIZES
from .asset.mlir_module import optimize_option
from .asset.program import Program
from .capture import (
    aliased_inputs,
    argument_checks,
    decompositions,
    guards,
    narrowed_floats,
    overflow,
    validate,
)
from .capture.decompositions import OwnDecompositions
from .capture.exporting import call_export_fn
from .capture.io_plan import Names, plan
from .capture.size_ranges import size_ranges
from .capture.validate import Rules
from .errors import ArgumentTypeError, ConversionError
from .kernels.metal import TorchMetalKernel, lowerings
from .lowering import opaque_calls
from .lowering.entrypoints import check_unused, names_to_convert, staged_names
from .lowering.program import Staged, build
from .lowering.registration import checked_name, entry_of
from .lowering.registry import BUILTIN, Registry
from .lowering.survey import Blocker, survey
from .mlir.folding import fold_emitted
from .ops import recognized_composites
from .passes.externalize import uncalled
from .passes.externalize.by_hand import ExternalizedProgram
from .passes.externalize.mark import marked
from .passes.externalize.spec import Externalized, as_specs, matches
from .passes.fold_constants import is_foldable
from .passes.recognize import (
    RecognitionReport,
    recognized,
    wanted_composites,
)
from .precision import Precision, PrecisionReport, set_report
from .progress import progress
from .targets import Rewriting, Target, registry_of, rewrites


def get_decomp_table() -> dict[Any, Callable[..., Any]]:
    """Return torch's default decomposition table without the ops that the converter lowers.

    Pass it to `ExportedProgram.run_decompositions`. Each call returns a new dictionary from
    overloads to functions: add an entry to decompose an op, delete one to keep the op.
    """
    return decompositions.table(BUILTIN.whole(), BUILTIN.decompositions())


class TorchConverter:
    """Convert exported PyTorch programs into one Core AI program.

    Stage programs with `add_exported_program` or `add_pytorch_module`, then call `to_coreai`.

    ```python
    from coreai_torch import TorchConverter, get_decomp_table

    exported = torch.export.export(model, (x,)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()
    program.optimize()
    ```

    Args:
        mode: how much debug information each op records: a `Mode` or its name, such as "debug";
            `Mode.RELEASE` by default.
        optimize: True runs `optimize()` in `to_coreai`; False never does, so that `save_asset`
            writes the program as it was converted. By default the environment variable
            `COREAI_TORCH_OPTIMIZE` decides (1 or 0); without it, `to_coreai` returns the program
            as it was converted and `save_asset` optimizes it.
        recognize: turn norms, rotary embeddings, attention and experts that the model computes
            step by step into composites: all of them, or a list of names; `recognition_report`
            lists the results.
        decompositions: changes to the decomposition table that `convert` uses, from an overload
            to a function that decomposes it, or to `None` to keep the op as it is.
        dump_passes: a folder; `to_coreai` writes the graph of each entry point there after each
            pass, as `main/00-captured.txt`, `main/01-externalize.txt`, ...
        target: the compute unit to emit for, or a `Target`, which explains the next three.
        safe: False applies no rewrites.
        skip_rewrites: ids of rewrites to leave out, as ["HAZ11"].
        exact: whether infinities, NaN and overflow give the same results as in torch.
        precision: "float16", "bfloat16" or a `Precision`; `precision_report` of the program has it.
    """

    class Mode(Enum):
        """`RELEASE` records the module of each op, `DEBUG` also the FX node and source lines."""

        RELEASE = "release"
        DEBUG = "debug"

    def __init__(
        self,
        mode: TorchConverter.Mode | str | None = None,
        *,
        optimize: bool | None = None,
        recognize: bool | Collection[str] = False,
        decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
        dump_passes: Path | str | None = None,
        target: Target | str | None = None,
        safe: bool = True,
        skip_rewrites: Collection[str] = (),
        precision: Precision | str | None = None,
        exact: bool = False,
    ) -> None:
        """Create a converter with the built-in lowerings and nothing staged."""
        self._mode = _mode(mode)
        self._optimize = optimize_option(optimize)
        chosen = Target.of(target, exact=exact, safe=safe, skip_rewrites=skip_rewrites)
        self._registry = Registry(registry_of(chosen.unit))
        self._exact = chosen.exact
        self._staged: dict[str, Staged] = {}
        self._composites = wanted_composites(recognize)
        self._decompositions = OwnDecompositions(decompositions)
        self._dump_passes = None if dump_passes is None else Path(dump_passes)
        self._reports: dict[str, RecognitionReport] = {}
        self._unit, self._rewrites = chosen.unit, chosen.rewrites()
        self._precision = Precision.of(precision)
        for entry in recognized_composites.lowerings() if self._composites else ():
            self._registry.add(entry)

    def add_exported_program(
        self,
        exported_program: torch.export.ExportedProgram,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
        *,
        _externalized_exported_programs: Sequence[ExternalizedProgram] | None = None,
    ) -> TorchConverter:
        """Stage a decomposed program and return the converter.

        `input_names` has one name for each argument that `forward` only reads, `output_names` one
        for each value it returns, `state_names` one for each buffer, then each argument, that it
        writes in place. The runtime loads the program by its `entrypoint_name`, which is unique.
        """
        argument_checks.check_program(exported_program)
        check_unused(entrypoint_name, self._staged)
        names = Names(input_names, output_names, state_names)
        found: Sequence[Externalized] = ()
        if _externalized_exported_programs:
            exported_program, found = opaque_calls.restored(
                exported_program, _externalized_exported_programs, self.decomposition_table()
            )
        return self._stage(exported_program, names, entrypoint_name, found)

    def _stage(
        self,
        program: torch.export.ExportedProgram,
        names: Names,
        entrypoint: str,
        externalized: Sequence[Externalized] = (),
    ) -> TorchConverter:
        made: PrecisionReport | None = None
        if self._precision is not None:
            program, made = self._precision.apply(program)
        before = program.graph_module if self._composites and self._dump_passes else None
        program, report = self._recognized(program, entrypoint, externalized)
        missing = validate.check(program, capture_rules(self))
        aliased_inputs.warn(program)
        guards.warn(program)
        self._reports[entrypoint] = report
        ports = plan(program, names)
        self._staged[entrypoint] = Staged(
            entrypoint, program, ports, externalized, before, missing, made
        )
        return self

    def add_pytorch_module(
        self,
        module: torch.nn.Module | None = None,
        export_fn: Callable[[torch.nn.Module], torch.export.ExportedProgram] | None = None,
        externalize_modules: Sequence[Any] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
        *,
        model: torch.nn.Module | None = None,
    ) -> TorchConverter:
        """Stage the decomposed program that `export_fn(module)` returns, and return the converter.

        While `export_fn` runs, functions that read tensor values are rewritten as in `convert`.
        Instances of `externalize_modules`, `ExternalizeSpec`s or classes, stay separate graphs.
        Names are those of `add_exported_program`. `model` is another name for `module`.
        """
        module = module if model is None else model
        argument_checks.check_module(module, export_fn)
        assert module is not None
        assert export_fn is not None
        check_unused(entrypoint_name, self._staged)  # before the export, which may take long
        found = list(matches(module, as_specs(externalize_modules)))
        with marked(found):
            program = call_export_fn(module, export_fn)
        argument_checks.check_returned(program)
        names = Names(input_names, output_names, state_names)
        stage_program(self, program, names, entrypoint_name, found)
        return self

    def to_coreai(self, *, entrypoints: Sequence[str] | None = None) -> Program:
        """Convert all staged programs, or the named ones, into one program; they stay staged."""
        chosen = [self._staged[name] for name in names_to_convert(entrypoints, self._staged)]
        validate.reject([n for one in chosen for n in one.missing if not self._supports(n)])
        for one in chosen:
            overflow.warn(one.program)
            narrowed_floats.warn(one.program)
        rewriting = Rewriting(self._unit, self._rewrites)
        with progress("converting", sum(len(one.program.graph.nodes) for one in chosen)) as advance:
            program = build(
                chosen,
                self._registry,
                debug=self._mode is TorchConverter.Mode.DEBUG,
                on_node=advance,
                dump_passes=self._dump_passes,
                optimize_at_save=self._optimize is None,
                exact=self._exact,
                finish=(fold_emitted, rewriting),
            )
        set_report(program, {c.entrypoint: c.precision for c in chosen if c.precision is not None})
        program.rewrites, program.regions = tuple(rewriting.done), rewriting.regions
        program.metadata |= rewrites.as_metadata(rewriting.done)
        sizes = {one.entrypoint: size_ranges(one.program, one.plan) for one in chosen}
        program.metadata |= {SIZES: sizes} if any(sizes.values()) else {}
        program.metadata |= {FORM: {"exact": True}} if self._exact else {}
        if self._optimize:
            program.optimize()
        return program

    @property
    def recognition_report(self) -> RecognitionReport:
        """Return the composites recognized in the staged programs, and the near misses."""
        return RecognitionReport.joined(self._reports.values())

    def clear(self, *, entrypoints: Sequence[str] | None = None) -> None:
        """Remove all staged programs, or the named ones; registered lowerings stay."""
        for name in staged_names(entrypoints, self._staged):
            del self._staged[name], self._reports[name]

    def in_mode(self, mode: TorchConverter.Mode) -> TorchConverter:
        """Return an independent copy, with its staged programs, that converts in another mode."""
        other = self._copy()
        other._mode = mode
        return other

    def for_target(self, target: Target) -> TorchConverter:
        """Return an independent copy that emits for another target."""
        other = self._copy()
        if target.unit is not None:
            other._registry = self._registry.with_base(registry_of(target.unit))
            other._unit, other._rewrites = target.unit, target.rewrites()
        other._exact = self._exact or target.exact
        return other

    def empty(self, mode: TorchConverter.Mode | None = None) -> TorchConverter:
        """Return an independent copy without staged programs: same lowerings, kernels and mode."""
        other = self._copy()
        other._mode = mode or self._mode
        other.clear()
        return other

    def split_precision(self) -> tuple[TorchConverter, Precision | None]:
        """Return a copy without a precision, and the precision of this converter."""
        other = self._copy()
        other._precision = None
        return other, self._precision

    def _copy(self) -> TorchConverter:
        """Return a converter that shares no registry, staged programs or reports with this one."""
        other = copy.copy(self)
        other._registry = self._registry.copy()
        other._staged, other._reports = dict(self._staged), dict(self._reports)
        return other

    def blockers(
        self,
        exported_program: torch.export.ExportedProgram,
        externalized: Sequence[Externalized] = (),
    ) -> list[Blocker]:
        """Return everything that prevents the conversion of a program, with its locations."""
        program, _ = self._recognized(exported_program, "main", externalized)
        staged = Staged("main", program, plan(program, Names()), externalized)
        with progress("checking", len(program.graph.nodes)) as advance:
            return survey(staged, self._registry, advance)

    def register_torch_lowering(
        self, qualified_name: str, allow_override: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorate a function that lowers `namespace::op[.overload]` in this converter.

        The function takes `(values_map, node, loc)`; or, if its first parameter is called `ctx`,
        a `Ctx` and the op's arguments by their names in the schema. It returns a value, or a list
        of values for an op with several results. `allow_override` replaces an existing lowering,
        such as a built-in one. `convert` does not decompose an op with a registered lowering.
        """
        name = checked_name(self._registry, qualified_name, allow_override)

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            self._registry.add(entry_of(name, fn), name=name, override=True)
            return fn

        return register

    def decomposition_table(self) -> dict[Any, Callable[..., Any]]:
        """Return the decomposition table that `convert` uses with this converter.

        It is `get_decomp_table()` without the ops that have a registered lowering, changed by
        the `decompositions` argument. Pass it to `run_decompositions` if you export yourself.
        """
        own, base = self._registry.own_names(), self._registry.base
        table = decompositions.table(base.whole(), base.decompositions())
        return self._decompositions.apply(decompositions.without(table, own))

    def register_custom_kernels(self, kernels: Sequence[TorchMetalKernel]) -> TorchConverter:
        """Convert calls of these kernels; register them before you add programs that use them."""
        for entry in lowerings(kernels):
            self._registry.add(entry, override=True)
        return self

    def has_own_decompositions(self) -> bool:
        """Return whether `decomposition_table()` differs from `get_decomp_table()`."""
        own = self._registry.own_names() or self._decompositions.functions
        return bool(own) or self._registry.base is not BUILTIN

    def _recognized(
        self,
        program: torch.export.ExportedProgram,
        entrypoint: str,
        externalized: Sequence[Externalized],
    ) -> tuple[torch.export.ExportedProgram, RecognitionReport]:
        if not self._composites:
            return program, RecognitionReport()
        return recognized(program, entrypoint, externalized, self._composites)

    def _supports(self, node: torch.fx.Node) -> bool:
        if node.target in self._decompositions.functions:
            return False
        return self._registry.for_node(node) is not None or is_foldable(node)


def _mode(given: TorchConverter.Mode | str | None) -> TorchConverter.Mode:
    try:
        return TorchConverter.Mode(given or "release")
    except ValueError:
        known = [mode.value for mode in TorchConverter.Mode]
        raise ConversionError(f"no mode is called {given!r}\n  try   pass one of {known}") from None


def check_converter(given: object) -> None:
    """Raise unless the argument is a converter or None."""
    if given is not None and not isinstance(given, TorchConverter):
        raise ArgumentTypeError(f"converter is {given!r}\n  try   pass TorchConverter()")


def stage_program(
    converter: TorchConverter,
    program: torch.export.ExportedProgram,
    names: Names,
    entrypoint: str,
    externalized: Sequence[Externalized],
) -> None:
    """Stage a program whose calls of externalized modules are marked."""
    uncalled.warn(externalized, uncalled.called(program.graph_module, externalized))
    converter._stage(program, names, entrypoint, externalized)


def capture_rules(converter: TorchConverter | None) -> Rules:
    """Return what a converter lowers and how it decomposes, for `capture.prepare`."""
    converter = TorchConverter() if converter is None else converter
    if converter.has_own_decompositions():
        name = "converter.decomposition_table()"
        return Rules(converter._supports, converter.decomposition_table, name)
    return Rules(converter._supports, converter.decomposition_table)
