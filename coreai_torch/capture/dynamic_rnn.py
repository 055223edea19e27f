"""Keep sequence lengths dynamic while a model with recurrent layers is exported.

Torch's fake kernels for LSTM, GRU and RNN unroll every time step to find the result sizes, which
specializes a dynamic sequence length. Within `keep_rnn_lengths_dynamic` the sizes are computed
from the operands, and the layer stays one op. If the decomposition table contains the layer, as
torch's default table does, its steps are unrolled as usual.

The kernels of torch are shared by all threads. They are replaced when the first thread enters and
restored when the last one leaves; a thread outside of the context always runs torch's own kernel.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor
from torch.fx.experimental.proxy_tensor import get_proxy_mode

from ..torch_compat import (
    COMPOSITE_IMPLICIT,
    aten,
    clear_dispatch_cache,
    global_decomposition_table,
)

_KEY = COMPOSITE_IMPLICIT
_DECOMPOSITIONS = global_decomposition_table["post_autograd"]
_ABSENT: Any = object()


def _output(x: Tensor, state: Tensor, bidirectional: bool) -> Tensor:
    directions = 2 if bidirectional else 1
    return x.new_empty((*x.shape[:2], directions * state.shape[2]))


def _lstm(x: Tensor, hx: list[Tensor], *options: Any) -> tuple[Tensor, ...]:
    bidirectional = options[-2]
    return _output(x, hx[0], bidirectional), torch.empty_like(hx[0]), torch.empty_like(hx[1])


def _single_state(x: Tensor, hx: Tensor, *options: Any) -> tuple[Tensor, ...]:
    return _output(x, hx, options[-2]), torch.empty_like(hx)


_FAKE_RESULTS: dict[Any, Callable[..., Any]] = {
    aten.lstm.input: _lstm,
    aten.gru.input: _single_state,
    aten.rnn_tanh.input: _single_state,
    aten.rnn_relu.input: _single_state,
}

_active: ContextVar[bool] = ContextVar("keep_rnn_lengths_dynamic", default=False)


def _kernel(fake: Callable[..., Any], unroll: Callable[..., Any]) -> Callable[..., Any]:
    """Return a kernel that unrolls outside of the context and while the layer is decomposed."""

    def kernel(*args: Any) -> Any:
        # A proxy mode records ops: the steps are wanted, not only the sizes of the results.
        fake_only = _active.get() and get_proxy_mode() is None
        return fake(*args) if fake_only else unroll(*args)

    return kernel


class _KernelPatch:
    """Replace torch's kernels while at least one thread uses them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._saved: list[tuple[dict[Any, Any], Any, Any]] = []  # table, key, original value

    def acquire(self) -> None:
        """Add a user; the first one replaces the kernels."""
        with self._lock:
            if self._users == 0:
                self._install()
            self._users += 1

    def release(self) -> None:
        """Remove a user; the last one restores the kernels."""
        with self._lock:
            self._users -= 1
            if self._users == 0:
                self._restore()

    def _install(self) -> None:
        try:
            for op, fake in _FAKE_RESULTS.items():
                kernel = _kernel(fake, op.py_kernels[_KEY])
                self._replace(op.py_kernels, _KEY, kernel)
                self._replace(_DECOMPOSITIONS, op, kernel)
                clear_dispatch_cache(op)
        except BaseException:
            self._restore()
            raise

    def _replace(self, table: dict[Any, Any], key: Any, kernel: Callable[..., Any]) -> None:
        self._saved.append((table, key, table.get(key, _ABSENT)))
        table[key] = kernel

    def _restore(self) -> None:
        while self._saved:
            table, key, original = self._saved.pop()
            if original is _ABSENT:
                table.pop(key, None)
            else:
                table[key] = original
        for op in _FAKE_RESULTS:
            clear_dispatch_cache(op)


_PATCH = _KernelPatch()


@contextmanager
def keep_rnn_lengths_dynamic() -> Iterator[None]:
    """Export and decompose within this context to keep a dynamic sequence length dynamic.

    It may be nested and used from several threads at once.
    """
    _PATCH.acquire()
    try:
        token = _active.set(True)
        try:
            yield
        finally:
            _active.reset(token)
    finally:
        _PATCH.release()
