"""Turn a case into a model, convert it, run it and compare it with torch."""

from __future__ import annotations

import functools
import os

import numeric_limits
import pytest
import runtime
import second_size
import torch
from constant_operations import computed_late

import coreai_torch
import coreai_torch.ops  # fills the registry; the package imports it when it is needed
from coreai_torch.errors import NotDecomposedError
from coreai_torch.ir.types import narrow
from coreai_torch.lowering.cases import Case, T
from coreai_torch.lowering.registry import BUILTIN
from coreai_torch.numerics.one_op import OneOp

# Relative and absolute tolerance by the dtype of the result; integers and booleans are exact.
TOLERANCE = numeric_limits.pairs(numeric_limits.EXACT_FLOAT8)

# The matrix of torch versions compares by the table alone, in half the time: the analysis does not
# depend on the version of torch, and `make test` runs it.
_ANALYZED = os.environ.get("COREAI_TORCH_ANALYZE_CASES") != "0"


def registered():
    return list(BUILTIN)


def _name(entry, index):
    target = entry.target
    short = target.name() if isinstance(target, torch._ops.OpOverload) else target.__name__
    return f"{short.removeprefix('aten::')}-{index}"


ALL = [
    pytest.param(entry, case, id=_name(entry, index))
    for entry in registered()
    for index, case in enumerate(entry.cases)
]
if not ALL:
    raise AssertionError("no lowering is registered")


class CaseModel(torch.nn.Module):
    """Call one op with the arguments of a case; constants of the case become buffers."""

    def __init__(self, target, case, emitted_for=None):
        super().__init__()
        self.target, self.case, self.cases = target, case, [case]
        self.emitted_for = emitted_for
        self.feeds, self.given = [], []
        self._buffers_made = 0
        self.args = [self._placed(a) for a in case.args]
        self.kwargs = {k: self._placed(v) for k, v in case.kwargs.items()}

    def _placed(self, given):
        if isinstance(given, list):
            return [self._placed(g) for g in given]
        if not isinstance(given, T):
            return lambda _: given
        seed = len(self.feeds) + self._buffers_made
        tensor = given.make(seed)
        if given.constant:
            name = f"constant_{self._buffers_made}"
            self.register_buffer(name, tensor)
            self._buffers_made += 1
            return lambda _: getattr(self, name)
        index = len(self.feeds)
        self.feeds.append(tensor)
        self.given.append(given)
        return lambda inputs: inputs[index]

    def _given(self, placed, inputs):
        if isinstance(placed, list):
            return [self._given(p, inputs) for p in placed]
        return placed(inputs)

    def as_one_op(self, feeds):
        """Return the call on these inputs for the error analysis."""
        args = [self._given(a, feeds) for a in self.args]
        kwargs = {k: self._given(v, feeds) for k, v in self.kwargs.items()}
        return OneOp(self.target, args, kwargs)

    def forward(self, *inputs):
        args = [self._given(a, inputs) for a in self.args]
        kwargs = {k: self._given(v, inputs) for k, v in self.kwargs.items()}
        result = self.target(*args, **kwargs)
        return result + 0 if isinstance(result, int | torch.SymInt) else result


def _dynamic_shapes(model):
    auto = torch.export.Dim.AUTO
    return (
        tuple(
            None if given.fixed else dict.fromkeys(range(len(given.shape)), auto)
            for given in model.given
        ),
    )


def converter(model):
    """Return a converter with the options of a case."""
    exact = any(case.exact for case in model.cases)
    return coreai_torch.TorchConverter(target=model.emitted_for, exact=exact)


def convert(model, *, dynamic):
    exported = torch.export.export(
        model, tuple(model.feeds), dynamic_shapes=_dynamic_shapes(model) if dynamic else None
    )
    try:  # an op with a lowering needs no decomposition, which takes 200 ms
        staged = converter(model).add_exported_program(exported)
    except NotDecomposedError:
        exported = exported.run_decompositions(_table(model.emitted_for))
        staged = converter(model).add_exported_program(exported)
    return exported, staged.to_coreai()


@functools.cache
def _table(target):
    return coreai_torch.TorchConverter(target=target).decomposition_table()


def listed(result):
    """Return the results of an op as a list, without None."""
    return [r for r in (result if isinstance(result, list | tuple) else [result]) if r is not None]


def compare(got, want, tolerance=None):
    want = want.to(narrow(want.dtype))
    assert (got.dtype, tuple(got.shape)) == (want.dtype, tuple(want.shape))
    relative, absolute = tolerance or TOLERANCE.get(want.dtype, (0, 0))
    torch.testing.assert_close(got, want, rtol=relative, atol=absolute, equal_nan=True)


def varies(given):
    """Return whether a case, an argument or a list of them has an input with dynamic sizes."""
    if isinstance(given, Case):
        return varies([*given.args, *given.kwargs.values()])
    if isinstance(given, list):
        return any(varies(one) for one in given)
    return isinstance(given, T) and bool(given.shape) and not (given.constant or given.fixed)


def sized(param):
    """Yield the case with static sizes and, if a size can vary, with dynamic sizes."""
    entry, case = param.values
    if case.void:
        skip = pytest.mark.skip(reason=case.void)
        yield pytest.param(entry, case, "void", id=f"{param.id}-void", marks=skip)
        return
    yield pytest.param(entry, case, "static", id=f"{param.id}-static")
    if varies(case):
        fixed = pytest.mark.skipif(bool(case.static_only), reason=case.static_only)
        yield pytest.param(entry, case, "dynamic", id=f"{param.id}-dynamic", marks=fixed)


def run_by_torch(program, feeds):
    """Return the outputs of the interpreter, which accumulates half precision as devices do."""
    return coreai_torch.to_torch(program)(feeds)


def runner(case):
    """Return what runs the program of a case."""
    return run_by_torch if case.by_torch else runtime.run


def results(model, *, dynamic, run=runtime.run):
    """Return pairs of torch's results and the program's: before and after `optimize`.

    The second pair uses other sizes if they are dynamic. Raise if an op has constants alone as
    operands.
    """
    exported, program = convert(model, dynamic=dynamic)
    names = exported.graph_signature.user_inputs
    if _ANALYZED:
        late = computed_late(program)
        assert not late, f"the native compiler would fold {late}"

    def pair(feeds):
        want = [torch.as_tensor(r) for r in listed(model(*feeds))]
        return want, list(run(program, dict(zip(names, feeds, strict=True))).values())

    pairs = [pair(model.feeds)]
    program.optimize()
    model.program = program
    model.fed = [model.feeds, second_size.feeds(exported, model) if dynamic else model.feeds]
    return [*pairs, pair(model.fed[-1])]


def judge(pairs, case, model):
    """Raise unless all results are right, by the table of dtypes and by the error analysis.

    The table keeps ops strict whose analysis is wide, such as polynomials of an order with an
    error. A case with a `tolerance`, which states its reason, has that instead of both.
    """
    fed = getattr(model, "fed", [model.feeds, model.feeds])
    analyzed = None
    for (want, got), feeds in zip(pairs, fed, strict=True):
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            compare(g, w, case.tolerance)
        if feeds is not fed[-1]:
            continue  # the static case analyzes the same inputs
        if case.tolerance is None and _ANALYZED and not any(map(_is_float8, want)):
            if analyzed is not None and _are_equal(analyzed, got):
                continue  # the same inputs and results as before optimize()
            wrong = [str(e) for e in model.as_one_op(feeds).compare(got, want) if not e.ok]
            assert not wrong, "; ".join(wrong)
            analyzed = got


def _are_equal(some, others):
    """Return whether tensors have the same bits."""
    return all(
        a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bytes(a), _bytes(b))
        for a, b in zip(some, others, strict=True)
    )


def _bytes(value):
    """Return the bytes of a tensor; one that is empty or has a stride of 0 has no such view."""
    dense = value.clone(memory_format=torch.contiguous_format).flatten()
    return dense.view(torch.uint8) if value.numel() else dense


def _is_float8(value):
    """Return whether the table requires equal bits."""
    return value.is_floating_point() and value.itemsize == 1


def check(entry, case, *, dynamic, run=None, emitted_for=None):
    """Compare eager torch with the converted program, executed by `run`."""
    model = CaseModel(entry.target, case, emitted_for)
    judge(results(model, dynamic=dynamic, run=run or runner(case)), case, model)
