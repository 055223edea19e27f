"""A pretended device: tensors that report another device and refuse to meet CPU tensors.

It stands in for a GPU where there is none: every op on mixed devices, every implicit CPU tensor and
every numpy view of a remote tensor raises, as it would with CUDA.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

# A device type that torch accepts without a backend and never initializes.
DEVICE = "lazy"


class Remote(torch.Tensor):
    """A tensor on the pretended device; `inner` has its elements."""

    @staticmethod
    def __new__(cls, inner):
        made = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.shape,
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device=DEVICE,
        )
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})

    def tolist(self):
        return self.inner.tolist()

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def numpy(self):
        raise TypeError("a remote tensor has no numpy view; copy it with cpu() first")


def _run(func, args, kwargs):
    tensors = [t for t in pytree.tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)]
    is_remote = any(isinstance(t, Remote) for t in tensors)
    if is_remote and func is not torch.ops.aten.copy_.default:
        for tensor in tensors:
            if not isinstance(tensor, Remote) and tensor.dim():
                raise RuntimeError(f"{func} got tensors on {DEVICE} and on the CPU")
    device = kwargs.get("device")
    if device is not None:
        is_remote = torch.device(device).type == DEVICE
        kwargs = {**kwargs, "device": torch.device("cpu")}
    args, kwargs = pytree.tree_map_only(Remote, lambda t: t.inner, (args, kwargs))
    made = func(*args, **kwargs)
    if not is_remote:
        return made
    return pytree.tree_map_only(torch.Tensor, Remote, made)


class _Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        return _run(func, args, kwargs or {})


class _Functions(TorchFunctionMode):
    """Make `torch.tensor(..., device=...)`, which fills memory without the dispatcher."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        if func is torch.tensor and (device := kwargs.pop("device", None)) is not None:
            return torch.tensor(*args, **kwargs).to(device)
        return func(*args, **kwargs)


@contextmanager
def pretended():
    """Allow `.to(DEVICE)` and factory calls with `device=DEVICE`."""
    with ExitStack() as stack:
        stack.enter_context(_Functions())
        stack.enter_context(_Dispatch())
        yield torch.device(DEVICE)
