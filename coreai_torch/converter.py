"""`TorchConverter`: stages exported programs and turns them into one Core AI program."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Any

import torch

from .asset.program import Program
from .capture import aliased_inputs, argument_checks, decompositions, guards, overflow, validate
from .capture.decompositions import OwnDecompositions
from .capture.exporting import call_export_fn
from .capture.io_plan import Names, plan
from .capture.validate import Rules
from .errors import ArgumentTypeError, ConversionError, NamingError, NothingStagedError
from .kernels.metal import TorchMetalKernel, lowerings
from .lowering.legacy import LegacyLowering
from .lowering.op_names import overload_named, registered_name
from .lowering.program import Staged, build
from .lowering.registry import BUILTIN, Lowering, Registry
from .lowering.survey import Blocker, survey
from .ops import recognized_composites
from .passes.externalize.mark import marked
from .passes.externalize.spec import Match, as_specs, matches
from .passes.fold_constants import is_foldable
from .passes.recognize import (
    RecognitionReport,
    recognized,
    wanted_composites,
)
from .progress import progress

RESERVED = ("aten", "higher_order", "coreai", "coreaix")


def get_decomp_table() -> dict[Any, Callable[..., Any]]:
    """Torch's default decomposition table less what the converter lowers whole.

    For `ExportedProgram.run_decompositions`. It is a fresh dictionary each time, from overloads
    to functions of torch: what you add to it is decomposed your way, what you delete stays whole.
    """
    return decompositions.table(BUILTIN.whole(), BUILTIN.rewrites())


class TorchConverter:
    """Converts exported PyTorch programs into one Core AI program.

    Stage programs with `add_exported_program` or `add_pytorch_module`, then call `to_coreai`.

    ```python
    from coreai_torch import TorchConverter, get_decomp_table

    exported = torch.export.export(model, (x,)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported, output_names=["y"]).to_coreai()
    program.optimize()
    ```

    Args:
        mode: how much each op tells of where it came from: `Mode.RELEASE` unless given, or its
            name, as in "debug".
        recognize: turn norms, rotary embeddings, attention and experts that the model spells out
            into composites: all of them, or those named; `recognition_report` tells which.
    """

    class Mode(Enum):
        """`RELEASE` records the module of each op, `DEBUG` also FX node and source lines."""

        RELEASE = "release"
        DEBUG = "debug"

    def __init__(
        self,
        mode: TorchConverter.Mode | str | None = None,
        *,
        recognize: bool | Collection[str] = False,
        decompositions: Mapping[Any, Callable[..., Any] | None] | None = None,
    ) -> None:
        """Create a converter with the built-in lowerings and nothing staged."""
        self._mode = _mode(mode)
        self._registry = Registry(BUILTIN)
        self._staged: dict[str, Staged] = {}
        self._wanted = wanted_composites(recognize)
        self._decompositions = OwnDecompositions(decompositions)
        self._reports: dict[str, RecognitionReport] = {}
        for entry in recognized_composites.lowerings() if self._wanted else ():
            self._registry.add(entry)

    def add_exported_program(
        self,
        exported_program: torch.export.ExportedProgram,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
    ) -> TorchConverter:
        """Stage a decomposed program; returns the converter.

        `input_names` has one for each argument that `forward` only reads, `output_names` for each
        value it returns, `state_names` for each buffer, then each argument, it writes in place.
        The run time loads it by its `entrypoint_name`; no two are the same.
        """
        argument_checks.check_program(exported_program)
        self._check_free(entrypoint_name)
        names = Names(input_names, output_names, state_names)
        return self._stage(exported_program, names, entrypoint_name)

    def _stage(
        self,
        program: torch.export.ExportedProgram,
        names: Names,
        entrypoint: str,
        externalized: Sequence[Match] = (),
    ) -> TorchConverter:
        program, report = self._recognized(program, entrypoint, externalized)
        validate.check(program, capture_rules(self))
        aliased_inputs.warn(program)
        guards.warn(program)
        self._reports[entrypoint] = report
        self._staged[entrypoint] = Staged(entrypoint, program, plan(program, names), externalized)
        return self

    def add_pytorch_module(
        self,
        module: torch.nn.Module,
        export_fn: Callable[[torch.nn.Module], torch.export.ExportedProgram],
        externalize_modules: Sequence[Any] | None = None,
        input_names: Sequence[str] | None = None,
        output_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        entrypoint_name: str = "main",
    ) -> TorchConverter:
        """Stage what `export_fn(module)`, a decomposed program, is; names as above.

        Instances of `externalize_modules`, `ExternalizeSpec`s or classes, stay whole.
        """
        argument_checks.check_module(module, export_fn)
        self._check_free(entrypoint_name)  # before the export, which may take long
        found = list(matches(module, as_specs(externalize_modules)))
        with marked(found):
            program = call_export_fn(module, export_fn)
        argument_checks.check_returned(program)
        names = Names(input_names, output_names, state_names)
        return self._stage(program, names, entrypoint_name, found)

    def to_coreai(self, *, entrypoints: Sequence[str] | None = None) -> Program:
        """Convert all staged programs, or the named ones, into one; they stay staged."""
        if not self._staged:
            raise NothingStagedError(
                "nothing is staged\n  try   add_exported_program(...) or add_pytorch_module(...)"
            )
        chosen = [self._staged[name] for name in self._known(entrypoints)]
        if not chosen:
            raise NamingError(
                f"entrypoints names none; staged are {list(self._staged)}\n"
                "  try   one of these, or leave it out for all"
            )
        for one in chosen:
            overflow.warn(one.program)
        count = sum(len(one.program.graph.nodes) for one in chosen)
        with progress("converting", count) as advance:
            return build(
                chosen,
                self._registry,
                debug=self._mode is TorchConverter.Mode.DEBUG,
                on_node=advance,
            )

    @property
    def recognition_report(self) -> RecognitionReport:
        """What was recognised in the staged programs, and what nearly was."""
        return RecognitionReport.joined(self._reports.values())

    def clear(self, *, entrypoints: Sequence[str] | None = None) -> None:
        """Forget all staged programs, or the named ones; registered lowerings stay."""
        for name in self._known(entrypoints):
            del self._staged[name], self._reports[name]

    def in_mode(self, mode: TorchConverter.Mode) -> TorchConverter:
        """A converter with the same lowerings and programs that records more, or less."""
        other = self._copy()
        other._mode = mode
        return other

    def empty(self, mode: TorchConverter.Mode | None = None) -> TorchConverter:
        """A converter with the same lowerings, kernels and mode, and nothing staged."""
        other = self._copy()
        other._mode = mode or self._mode
        other.clear()
        return other

    def _copy(self) -> TorchConverter:
        """Return a converter that shares no registry, staged programs or reports with this one."""
        other = copy.copy(self)
        other._registry = self._registry.copy()
        other._staged, other._reports = dict(self._staged), dict(self._reports)
        return other

    def blockers(
        self,
        exported_program: torch.export.ExportedProgram,
        externalized: Sequence[Match] = (),
    ) -> list[Blocker]:
        """All that keeps a decomposed program from being converted, each with its places."""
        program, _ = self._recognized(exported_program, "main", externalized)
        staged = Staged("main", program, plan(program, Names()), externalized)
        with progress("checking", len(program.graph.nodes)) as advance:
            return survey(staged, self._registry, advance)

    def register_torch_lowering(
        self, qualified_name: str, allow_override: bool = False
    ) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
        """Decorator: lower `namespace::op[.overload]` with a function, in this converter only.

        The function gets `(values_map, node, loc)`; or, if its first parameter is called
        `ctx`, a `Ctx` and the op's arguments by the names of its schema. It returns a value, or
        a list of them for an op with several results. `allow_override` replaces a lowering that
        is there already, as those of the built-in namespaces are.
        """
        name = self._checked_name(qualified_name, allow_override)

        def register(fn: Callable[..., Any]) -> Callable[..., Any]:
            if not callable(fn):
                raise ArgumentTypeError(f"a lowering is a function, not {fn!r}\n  try   def lower")
            first = next(iter(inspect.signature(fn).parameters), None)
            if first == "ctx":
                target = overload_named(name)
                entry: Any = Lowering(target, fn, origin="registered")
                entry.signature  # noqa: B018  a mismatch with the schema shows here, not later
            else:
                entry = LegacyLowering(name, fn)
            self._registry.add(entry, name=name, override=True)
            return fn

        return register

    def decomposition_table(self) -> dict[Any, Callable[..., Any]]:
        """Return the decomposition table that `convert` uses with this converter.

        It is `get_decomp_table()` without the ops that have a registered lowering, changed by
        the `decompositions` argument. Pass it to `run_decompositions` if you export yourself.
        """
        own = self._registry.own_names()
        return self._decompositions.apply(decompositions.without(get_decomp_table(), own))

    def register_custom_kernels(self, kernels: Sequence[TorchMetalKernel]) -> TorchConverter:
        """Let calls of these kernels become Core AI ops; before the programs that use them."""
        for entry in lowerings(kernels):
            self._registry.add(entry, override=True)
        return self

    def _recognized(
        self, program: torch.export.ExportedProgram, entrypoint: str, externalized: Sequence[Match]
    ) -> tuple[torch.export.ExportedProgram, RecognitionReport]:
        if not self._wanted:
            return program, RecognitionReport()
        return recognized(program, entrypoint, externalized, self._wanted)

    def _checked_name(self, qualified_name: str, allow_override: bool) -> str:
        name = registered_name(qualified_name)
        namespace = name.partition("::")[0]
        if namespace in RESERVED and not allow_override:
            raise ConversionError(
                f"{qualified_name!r}: the namespace {namespace!r} is built in\n"
                "  try   allow_override=True to replace a built-in lowering"
            )
        if self._registry.get(name) is not None and not allow_override:
            raise ConversionError(
                f"{qualified_name!r} has a lowering already\n  try   allow_override=True"
            )
        return name

    def _check_free(self, entrypoint: str) -> None:
        if not (isinstance(entrypoint, str) and entrypoint):
            raise NamingError(f"entrypoint_name is {entrypoint!r}\n  try   a name, as 'main'")
        if entrypoint in self._staged:
            raise NamingError(
                f"an entrypoint {entrypoint!r} is staged already; there are "
                f"{list(self._staged)}\n  try   another entrypoint_name, or "
                f"clear(entrypoints=[{entrypoint!r}]) first"
            )

    def _known(self, entrypoints: Sequence[str] | None) -> list[str]:
        if entrypoints is None:
            return list(self._staged)
        if not isinstance(entrypoints, Collection):
            raise ArgumentTypeError(
                f"entrypoints is {entrypoints!r}\n  try   some of {list(self._staged)}"
            )
        wanted = [entrypoints] if isinstance(entrypoints, str) else list(entrypoints)
        unknown = [name for name in wanted if name not in self._staged]
        if unknown:
            raise NamingError(
                f"no entrypoint is called {', '.join(map(repr, unknown))}; staged are "
                f"{list(self._staged)}\n  try   one of these"
            )
        return list(dict.fromkeys(wanted))

    def _supports(self, node: torch.fx.Node) -> bool:
        if node.target in self._decompositions.functions:
            return False
        return self._registry.for_node(node) is not None or is_foldable(node)


def _mode(given: TorchConverter.Mode | str | None) -> TorchConverter.Mode:
    try:
        return TorchConverter.Mode(given or "release")
    except ValueError:
        known = [mode.value for mode in TorchConverter.Mode]
        raise ConversionError(f"no mode is called {given!r}\n  try   one of {known}") from None


def check_converter(given: object) -> None:
    """Refuse what is given for a converter and is none."""
    if given is not None and not isinstance(given, TorchConverter):
        raise ArgumentTypeError(f"converter is {given!r}\n  try   TorchConverter()")


def capture_rules(converter: TorchConverter | None) -> Rules:
    """Return what a converter lowers and how it decomposes, for `capture.prepare`."""
    converter = TorchConverter() if converter is None else converter
    if converter._registry.own_names() or converter._decompositions.functions:
        name = "converter.decomposition_table()"
        return Rules(converter._supports, converter.decomposition_table, name)
    return Rules(converter._supports, converter.decomposition_table)
