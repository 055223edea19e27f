"""Find the first op whose result differs from torch's.

Each step of the bisection converts the graph again with some intermediate results as outputs, and
compares them with torch's.
"""

from __future__ import annotations

import operator
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.fx as fx

from ..asset.mlir_module import write_module
from ..capture.io_plan import Output
from ..errors import module_path, source_line, target_name
from ..fx.liveness import live_nodes
from ..ir.types import BY_NAME, narrow
from ..lowering.program import Staged, build
from ..lowering.registry import Registry
from ..numerics.arrays import array, tensor
from ..numerics.bisect import Bisection, ancestors
from ..numerics.compare import compare
from ..numerics.narrowing import beyond_32_bits
from ..numerics.output_error import OutputError
from .engines import start
from .isolation import ProgramFile
from .limits import ErrorLimits, NodeLimits, feed_of
from .runner import Engine
from .subject import ReferenceCall, Subject
from .trials import Failure
from .verdict import Divergence

Values = dict[fx.Node, torch.Tensor]


def _known_change(model: torch.nn.Module) -> str:
    """Return which module of torch computes other numbers when it is exported, and what to do."""
    if not any(isinstance(m, torch.nn.TransformerEncoder) for m in model.modules()):
        return ""
    return (
        "in inference, the fast path of nn.TransformerEncoder sets padded positions to zero, "
        "which export does not: do not use those positions, and call "
        "torch.backends.mha.set_fastpath_enabled(False) before you convert. Found because "
    )


@dataclass(frozen=True)
class Search:
    """The graph to search, and how to convert and run it."""

    subject: Subject
    registry: Registry
    limits: ErrorLimits
    engine: Engine
    timeout: float
    device: str = "cpu"

    def first(self, failure: Failure) -> tuple[Divergence | None, str]:
        """Return the divergence, or None with the reason."""
        try:
            want = _eager(self.subject, failure.call)
        except (IndexError, RuntimeError) as cause:  # uninitialized memory taken for a position
            reason = str(cause).partition("\n")[0]
            return None, f"torch's run of the exported graph fails on these inputs: {reason}"
        if (changed := self._changed_by_export(failure, want)) is not None:
            return None, (
                f"{_known_change(self.subject.reference)}"
                "torch's run of the exported and decomposed graph differs from the model: "
                f"{changed}; export or decomposition changed the numbers"
            )
        allowed = self._allowed(failure, want)
        found = self._bisect(failure, want, allowed)
        if found is None:
            return None, (
                "the difference disappears when intermediate results are outputs: it comes from "
                "a rewrite across ops, from externalization, or from an asset that was converted "
                "from another source"
            )
        node, error = found
        # Name the op with several results, not the getitem.
        op = node.args[0] if node.target is operator.getitem else node
        alone = None if error.narrowed else self._alone(node, failure, want, allowed)
        divergence = Divergence(
            op.name,
            target_name(op.target),
            module_path(op),
            source_line(op),
            error,
            alone,
            str(failure.trial),
            "the result" if error.narrowed else _narrowed_operand(node, want, alone),
        )
        return divergence, ""

    def _changed_by_export(self, failure: Failure, want: Values) -> OutputError | None:
        """Compare torch's run of the exported graph with the model itself."""
        call, limits = failure.call, failure.limits
        outputs = zip(self.subject.plan.outputs, call.outputs, limits.outputs, strict=True)
        for output, expected, allowed in outputs:
            if output.value in want:
                value = want[output.value]
                value = value.to(narrow(value.dtype))
                error = compare(output.name, value, expected, allowed, wraps=True)
                if not error.ok:
                    return error
        return None

    def _allowed(self, failure: Failure, want: Values) -> NodeLimits:
        """Return the limits of the nodes that can be compared."""
        nodes = _comparable(self.subject, want)
        return self.limits.of_nodes(failure.call, {n: want[n] for n in want if n in nodes})

    def _bisect(
        self, failure: Failure, want: Values, allowed: NodeLimits
    ) -> tuple[fx.Node, OutputError] | None:
        """Return the first node that diverges, with its error."""
        suspects = ancestors(self._ends(failure), _inputs) & _comparable(self.subject, want)
        ordered = [n for n in self.subject.exported.graph.nodes if n in suspects]
        search = Bisection(ordered, _inputs)
        errors: dict[fx.Node, OutputError] = {}
        trial = failure.trial
        wraps = not any(e.narrowed for e in (*trial.outputs, *trial.states))
        while probes := search.next_batch():
            got = self._run(probes, failure)
            errors |= {n: compare(n.name, got[n], want[n], allowed[n], wraps=wraps) for n in probes}
            search.report({n: errors[n].ok for n in probes})
        return next(((node, errors[node]) for node in search.failed()), None)

    def _ends(self, failure: Failure) -> list[fx.Node]:
        """Return the nodes of the outputs and states that differ."""
        plan, trial = self.subject.plan, failure.trial
        outputs = [o.value for o, e in zip(plan.outputs, trial.outputs, strict=True) if not e.ok]
        states = [s.written for s, e in zip(plan.states, trial.states, strict=True) if not e.ok]
        return [node for node in (*outputs, *states) if isinstance(node, fx.Node)]

    def _run(self, probes: Sequence[fx.Node], failure: Failure) -> Values:
        """Convert the graph with these nodes as outputs, run it, and return their values."""
        plan, call = self.subject.plan, failure.call
        names = [f"probe_{i}" for i in range(len(probes))]
        outputs = tuple(Output(name, node) for name, node in zip(names, probes, strict=True))
        with (
            tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder,
            _returning(self.subject, probes),
        ):
            staged = Staged("main", self.subject.exported, replace(plan, outputs=outputs))
            program = build([staged], self.registry, debug=True, on_node=lambda: None)
            path = Path(folder) / "probed.mlirbc"
            write_module(program, path)
            runner = start(
                self.engine,
                ProgramFile(bytecode=path),
                entrypoint="main",
                optimize=failure.trial.optimized,
                timeout=self.timeout,
                device=self.device,
            )
            with closing(runner):
                places = {node: at for at, node in enumerate(self.subject.arguments)}
                inputs = {i.name: array(call.leaves[places[i.node]]) for i in plan.inputs}
                before = zip(plan.states, call.states_before, strict=True)
                states = {s.name: array(value) for s, value in before}
                raw, _ = runner.call(inputs, states)
        return {node: tensor(raw[name]) for node, name in zip(probes, names, strict=True)}

    def _alone(
        self, node: fx.Node, failure: Failure, want: Values, allowed: NodeLimits
    ) -> bool | None:
        """Return whether torch differs from the op on the operands that the program computed."""
        inputs = [n for n in node.all_input_nodes if n.op == "call_function"]
        if any(n not in _comparable(self.subject, want) for n in inputs):
            return None
        got = self._run([*inputs, node], failure)
        values = {**want, **{n: got[n].to(want[n].dtype) for n in inputs}}
        try:
            args, kwargs = fx.node.map_arg((node.args, node.kwargs), lambda n: values[n])
            with torch.no_grad():
                local = node.target(*args, **kwargs)
        except Exception:  # an operand is not a tensor, for example a size
            return None
        return not compare(node.name, got[node], local, allowed[node], wraps=True).ok


def _narrowed_operand(node: fx.Node, want: Values, alone: bool | None) -> str:
    """Return the operand that exceeds 32 bits, if the op is right on the operands it got."""
    if alone is not False:
        return ""
    lost = [n for n in node.all_input_nodes if n in want and beyond_32_bits(want[n]) is not None]
    return f"the operand %{lost[0].name}" if lost else ""


def _eager(subject: Subject, call: ReferenceCall) -> Values:
    """Run the exported graph in torch, and return the tensors of all its nodes."""
    feed = feed_of(subject, call)
    run = fx.Interpreter(subject.exported.graph_module, garbage_collect_values=False)
    placeholders = [n for n in subject.exported.graph.nodes if n.op == "placeholder"]
    with torch.no_grad():
        run.run(*(feed[n] for n in placeholders), enable_io_processing=False)
    return {n: value for n, value in run.env.items() if isinstance(value, torch.Tensor)}


def _comparable(subject: Subject, want: Values) -> set[fx.Node]:
    """Return the nodes that can be outputs: live, non-empty tensors of a supported dtype."""
    known = set(BY_NAME.values())
    live = live_nodes(subject.exported.graph)
    return {
        node
        for node, value in want.items()
        if node.op == "call_function" and node in live and value.numel()
        if narrow(value.dtype) in known
    }


def _inputs(node: fx.Node) -> list[fx.Node]:
    return list(node.all_input_nodes)


@contextmanager
def _returning(subject: Subject, probes: Sequence[fx.Node]) -> Iterator[None]:
    """Make the graph return its states and these nodes, and restore it afterwards."""
    (output,) = (n for n in subject.exported.graph.nodes if n.op == "output")
    original = output.args
    output.args = (tuple(dict.fromkeys([*(s.written for s in subject.plan.states), *probes])),)
    try:
        yield
    finally:
        output.args = original
