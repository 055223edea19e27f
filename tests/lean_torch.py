"""Make `run_decompositions` faster for the tests by patching torch internals.

It takes 250 ms of CPU time for any program, and 70 ms with these patches; the suite calls it some
thousand times. Both patches leave out work without effect in the tests: test_lean_torch.py compares
the decomposed programs with those of unpatched torch. With PLAIN_TORCH=1 in the environment nothing
is patched: `make test-plain-torch` runs the whole suite that way. A version of torch without one of
the patched names runs without that patch.
"""

from __future__ import annotations

import contextlib
import functools
import os
from unittest import mock

import torch
import torch._export.utils as walks
import torch.export.decomp_utils as tables
import torch.export.exported_program as programs

# torch overrides kernels of 270 ops for each of these backends, twice, and restores them.
_BACKENDS = ("_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", "_BACKEND_KEYS_TO_OVERRIDE")
_WALK, _LOAD = "_collect_all_valid_cia_ops", "_materialize_cpp_cia_ops"
_PATCHED = [
    (module, name)
    for module in (walks, tables, programs)
    for name in (*_BACKENDS, _WALK)
    if hasattr(module, name) and hasattr(walks, _LOAD)
]
_ORIGINAL = [getattr(*place) for place in _PATCHED]


def make_lean() -> None:
    """Patch torch for the rest of the process, unless PLAIN_TORCH is set."""
    if os.environ.get("PLAIN_TORCH"):
        return
    _set_all([_available(x) if isinstance(x, list) else _load_once(x) for x in _ORIGINAL])


@contextlib.contextmanager
def unpatched():
    """Undo the patches within a block."""
    lean = [getattr(*place) for place in _PATCHED]
    _set_all(_ORIGINAL)
    try:
        yield
    finally:
        _set_all(lean)


def _set_all(values):
    for (module, name), value in zip(_PATCHED, values, strict=True):
        setattr(module, name, value)


def _available(keys):
    """Return the keys of the devices that this process can use."""
    device = torch.accelerator.current_accelerator()
    names = {"CPU", "Meta", *([device.type.upper()] if device else [])}
    return [key for key in keys if key.name.removeprefix("Autograd") in names]


def _load_once(walk):
    """Load all ops once; the original loads them again before each of torch's 28 namespaces."""

    @functools.wraps(walk)
    def lean():
        getattr(walks, _LOAD)()
        with mock.patch.object(walks, _LOAD, return_value=None):
            return walk()

    return lean
