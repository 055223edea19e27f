"""Patches of torch affect only the thread that exports, and are restored exactly."""

from __future__ import annotations

import threading
from contextlib import ExitStack

import pytest
import torch
from torch import nn

from coreai_torch.capture.constant_tracking import track_constants
from coreai_torch.capture.dynamic_rnn import keep_rnn_lengths_dynamic
from coreai_torch.capture.export_rewrites import rewrite_for_export
from coreai_torch.torch_compat import COMPOSITE_IMPLICIT, global_decomposition_table

OPS = [getattr(torch.ops.aten, name).input for name in ("lstm", "gru", "rnn_tanh", "rnn_relu")]
X = torch.randn(6, 2, 4)


def kernels():
    """The state of torch that the context changes."""
    table = global_decomposition_table["post_autograd"]
    return [(dict(op.py_kernels), table.get(op)) for op in OPS]


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.LSTM(4, 3)

    def forward(self, x):
        return self.inner(x)[0]


def keeps_the_length_dynamic():
    program = torch.export.export(Lstm(), (X,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    (placeholder,) = [n for n in program.graph.nodes if n.name == "x"]
    return str(placeholder.meta["val"].shape[0]) != str(X.shape[0])


class Worker(threading.Thread):
    """Enter the context, and leave it on request, with `error` if one is given."""

    def __init__(self, error=None):
        super().__init__()
        self.error, self.caught = error, None
        self.entered, self.leave = threading.Event(), threading.Event()
        self.start()
        assert self.entered.wait(60)

    def run(self):
        try:
            with keep_rnn_lengths_dynamic():
                self.entered.set()
                assert self.leave.wait(60)
                if self.error is not None:
                    raise self.error
        except RuntimeError as error:
            self.caught = error

    def finish(self):
        self.leave.set()
        self.join(60)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_overlapping_threads_restore_the_kernels(order):
    before = kernels()
    workers = [Worker(), Worker()]
    assert kernels() != before
    workers[order[0]].finish()
    assert kernels() != before
    workers[order[1]].finish()
    assert kernels() == before


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_a_thread_that_raises_restores_the_kernels(order):
    before = kernels()
    error = RuntimeError("failed")
    workers = [Worker(error), Worker()]
    for place in order:
        workers[place].finish()
    assert workers[0].caught is error
    assert kernels() == before


def test_a_nested_use_restores_the_kernels_at_the_end():
    before = kernels()
    with keep_rnn_lengths_dynamic():
        with keep_rnn_lengths_dynamic():
            inside = kernels()
        assert kernels() == inside != before
    assert kernels() == before


def test_kernels_that_another_library_adds_meanwhile_are_kept():
    op = OPS[0]
    key = next(key for key in op.py_kernels if key != COMPOSITE_IMPLICIT)
    with ExitStack() as stack:
        stack.callback(op.py_kernels.__setitem__, key, op.py_kernels[key])
        with keep_rnn_lengths_dynamic():
            op.py_kernels[key] = marker = lambda *given: None
        assert op.py_kernels[key] is marker


def test_only_the_thread_in_the_context_keeps_lengths_dynamic():
    other = Worker()
    try:
        assert not keeps_the_length_dynamic()
        with keep_rnn_lengths_dynamic():
            assert keeps_the_length_dynamic()
    finally:
        other.finish()


def test_threads_that_enter_and_leave_at_once_restore_the_kernels():
    before = kernels()
    start = threading.Barrier(4)
    failures = []

    def enter_often():
        start.wait(60)
        for _ in range(200):
            with keep_rnn_lengths_dynamic():
                if kernels() == before:
                    failures.append("not patched within the context")

    threads = [threading.Thread(target=enter_often) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not failures
    assert kernels() == before


@pytest.mark.parametrize("context", [rewrite_for_export, lambda: track_constants(nn.Identity())])
def test_function_modes_do_not_reach_other_threads(context):
    depths = []

    def measure():
        depths.append(torch._C._len_torch_function_stack())

    with context():
        measure()
        thread = threading.Thread(target=measure)
        thread.start()
        thread.join(60)
    measure()
    assert depths == [1, 0, 0]


@pytest.mark.parametrize("context", [rewrite_for_export, lambda: track_constants(nn.Identity())])
def test_function_modes_are_removed_after_an_error(context):
    with pytest.raises(RuntimeError, match="failed"), context():
        raise RuntimeError("failed")
    assert torch._C._len_torch_function_stack() == 0
