"""What `run_decompositions` does before it looks at the program, in a third of the time.

It takes 200 ms whatever the program, and most tests ask for it. Both changes leave out work that
has no effect here; a test holds the decomposed programs to those of torch as it stands.
"""

from __future__ import annotations

import contextlib
import functools
from unittest import mock

import torch
import torch._export.utils as walks
import torch.export.decomp_utils as tables
import torch.export.exported_program as programs

# Kernels for each of these are laid over 270 ops, twice, and taken away again.
_BACKENDS = ("_AUTOGRAD_ALIAS_BACKEND_KEYS_TO_OVERRIDE", "_BACKEND_KEYS_TO_OVERRIDE")
_WALK, _LOAD = "_collect_all_valid_cia_ops", "_materialize_cpp_cia_ops"
_PLACES = [(programs, name) for name in _BACKENDS] + [(m, _WALK) for m in (walks, tables, programs)]
_AS_TORCH_HAS_THEM = [getattr(*place) for place in _PLACES]


def make_lean() -> None:
    """For the rest of the process."""
    _put([_present(x) if isinstance(x, list) else _loading_once(x) for x in _AS_TORCH_HAS_THEM])


@contextlib.contextmanager
def as_torch_is():
    lean = [getattr(*place) for place in _PLACES]
    _put(_AS_TORCH_HAS_THEM)
    try:
        yield
    finally:
        _put(lean)


def _put(values):
    for (module, name), value in zip(_PLACES, values, strict=True):
        setattr(module, name, value)


def _present(keys):
    """Those of the devices that a tensor of this process can be on."""
    device = torch.accelerator.current_accelerator()
    names = {"CPU", "Meta", *([device.type.upper()] if device else [])}
    return [key for key in keys if key.name.removeprefix("Autograd") in names]


def _loading_once(walk):
    """The walk loads all ops anew before each of torch's 28 namespaces."""

    @functools.wraps(walk)
    def lean():
        getattr(walks, _LOAD)()
        with mock.patch.object(walks, _LOAD, return_value=None):
            return walk()

    return lean
