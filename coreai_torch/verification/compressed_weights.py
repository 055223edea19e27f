"""Compare a program whose weights are compressed with the model that has the original weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from torch import Tensor

from ..asset import reading
from ..asset.changed_constants import ChangedConstant
from ..asset.reading import Op
from ..errors import ConversionError, NativeError
from ..interpreter import Event, RunError, to_torch
from ..numerics.arrays import array, tensor
from . import ports
from .compressed_changes import changed_elements
from .compression_effect import CompressionEffect, OutputChange, WeightChange
from .isolation import Ports
from .runner import Runner
from .subject import Leaves, ReferenceCall, Subject
from .verdict import Verdict

_PREFIX = "coreai."
_DECOMPRESS = ("blockwise_shift_scale", "lut_to_dense", "sparse_with_bitmask_to_dense")
# A compressed weight is closer to its original than to zero; other weights are farther away.
_FARTHEST = 1.0


def stores_compressed_weights(subject: Subject, functions: Mapping[str, reading.Function]) -> bool:
    """Return whether the program decompresses weights although the model does not."""
    own = any(
        getattr(node.target, "namespace", "") == "coreai" for node in subject.exported.graph.nodes
    )
    return not own and any(_short(op) in _DECOMPRESS for op in _ops(functions))


def _ops(functions: Mapping[str, reading.Function]) -> Iterator[Op]:
    blocks = [function.body for function in functions.values()]
    while blocks:
        for op in blocks.pop().ops:
            yield op
            blocks += op.regions


def _short(op: Op) -> str:
    return op.name.removeprefix(_PREFIX)


@dataclass(frozen=True)
class _Decompressed:
    """A decompressed weight, how it is stored, and the op and function that decompressed it."""

    value: Tensor
    kind: str
    op: Op
    function: str


@dataclass
class _Seen:
    """The decompressed weights that a run of the program computed."""

    values: list[_Decompressed] = field(default_factory=list)
    stored: dict[int, str] = field(default_factory=dict)  # element types by value number

    def watch(self, event: Event) -> None:
        """Record the result of an op that decompresses a weight."""
        op = event.op
        if _short(op) not in _DECOMPRESS:
            return
        first = op.operand_types[0].element
        kind = self.stored.get(op.operands[0], first)
        for number, value in zip(op.results, event.results, strict=True):
            self.stored[number] = kind
            if isinstance(value, Tensor) and value.is_floating_point() and value.dim() > 1:
                found = _Decompressed(value.detach().clone(), kind, op, event.function)
                self.values.append(found)


@dataclass(frozen=True)
class _Match:
    parameter: Tensor
    found: _Decompressed
    change: WeightChange


class Explanation:
    """Run model and program with the program's weights, and compare both with the original."""

    def __init__(self, subject: Subject, source: Any, entrypoint: str) -> None:
        self._subject, self._source, self._entrypoint = subject, source, entrypoint

    def explain(
        self,
        verdict: Verdict,
        leaves: Leaves,
        start: Callable[[], Runner],
        examine: Callable[[], Verdict],
    ) -> Verdict:
        """Return the verdict with the effect of the compressed weights.

        `examine` verifies the program against the model, whose weights are replaced meanwhile.
        """
        try:
            (call,) = self._subject.calls(lambda step: leaves, 1)
            matches, rounds = self._matches(call)
            if not matches:
                return verdict
            with _replaced(matches):
                (compressed,) = self._subject.calls(lambda step: leaves, 1)
                inner = examine()
            got = self._run(start(), call)
        except (ConversionError, NativeError, RunError) as error:
            note = f"the effect of the compressed weights could not be measured: {error}"
            return replace(verdict, notes=(*verdict.notes, note))
        weights = [p for p in self._parameters().values() if p.dim() > 1]
        effect = CompressionEffect(
            tuple(match.change for match in matches),
            len(weights),
            _changes(got, call.outputs, compressed.outputs),
            inner.ok,
            len(inner.trials),
            rounds,
            "" if inner.ok else "\n".join(str(inner).splitlines()[1:3]).strip(),
        )
        if inner.ok:  # the notes of `verdict` blame the program
            verdict = replace(verdict, notes=inner.notes, left_out=inner.left_out)
        changed = (*inner.weights, *self._changed(matches))
        return replace(verdict, compression=effect, divergence=inner.divergence, weights=changed)

    def _changed(self, matches: Sequence[_Match]) -> Iterator[ChangedConstant]:
        """Yield the weights with elements that compression does not explain."""
        functions = reading.read(self._source).functions
        for match in matches:
            found, body = match.found, functions[match.found.function].body
            constants = {
                op.results[0]: op.attributes["value"]
                for op in body.ops
                if op.name == f"{_PREFIX}constant"
            }
            change = changed_elements(
                match.change.name, match.parameter, found.value, found.op, constants
            )
            if change is not None:
                yield change

    def _parameters(self) -> dict[str, Tensor]:
        return dict(self._subject.reference.named_parameters())

    def _matches(self, call: ReferenceCall) -> tuple[list[_Match], bool]:
        """Return the weights of the program, and whether it rounds activations."""
        function = to_torch(self._source).function(self._entrypoint)
        found = Ports(list(function.inputs), list(function.outputs), list(function.states))
        pairing = ports.paired(found, self._subject.plan, named=False)
        seen = _Seen()
        rounds = False

        def watch(event: Event) -> None:
            nonlocal rounds
            rounds = rounds or _short(event.op) == "quantize"
            seen.watch(event)

        inputs = dict(zip(pairing.inputs, self._inputs(call), strict=True))
        states = dict(zip(pairing.states, [s.clone() for s in call.states_before], strict=True))
        function(inputs, state=states, watch=watch)
        named = self._parameters()
        matched = (_match(name, value, seen.values) for name, value in named.items())
        return [match for match in matched if match is not None], rounds

    def _inputs(self, call: ReferenceCall) -> list[Any]:
        places = {node: at for at, node in enumerate(self._subject.arguments)}
        return [call.leaves[places[port.node]] for port in self._subject.plan.inputs]

    def _run(self, runner: Runner, call: ReferenceCall) -> dict[str, Tensor]:
        try:
            pairing = ports.paired(runner.ports, self._subject.plan, named=False)
            inputs = zip(pairing.inputs, map(array, self._inputs(call)), strict=True)
            states = zip(pairing.states, map(array, call.states_before), strict=True)
            raw, _ = runner.call(dict(inputs), dict(states))
            return {name: tensor(raw[name]) for name in pairing.outputs}
        finally:
            runner.close()


def _match(name: str, value: Tensor, found: Sequence[_Decompressed]) -> _Match | None:
    """Return the decompressed weight that is nearest to a weight of the model."""
    if value.dim() < 2 or not value.is_floating_point():
        return None
    plain = value.detach().float()
    norm = float(plain.norm())
    best: _Match | None = None
    for one in found:
        if one.value.shape != value.shape or not norm:
            continue
        error = float((one.value.float() - plain).norm()) / norm
        if error < (_FARTHEST if best is None else best.change.error):
            best = _Match(value, one, WeightChange(name, one.kind, error))
    return best


@contextmanager
def _replaced(matches: Sequence[_Match]) -> Iterator[None]:
    """Replace the weights of the model for a while."""
    kept = [match.parameter.data for match in matches]
    for match in matches:
        match.parameter.data = match.found.value.to(match.parameter.dtype)
    try:
        yield
    finally:
        for match, value in zip(matches, kept, strict=True):
            match.parameter.data = value


def _changes(
    got: Mapping[str, Tensor], want: Sequence[Tensor], compressed: Sequence[Tensor]
) -> tuple[OutputChange, ...]:
    changes = []
    for (name, value), plain, other in zip(got.items(), want, compressed, strict=True):
        if plain.is_floating_point() and plain.numel():
            norm = float(plain.double().norm()) or 1.0
            wrong = [(value, plain), (other, plain), (value, other)]
            parts = [float((a.double() - b.double()).norm()) / norm for a, b in wrong]
            changes.append(OutputChange(name, *parts))
    return tuple(changes)
