"""Messages through a pipe: a pickle behind its length, so that it may be larger than the pipe."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_LENGTH = struct.Struct("<Q")
_SMALL = 1 << 16  # bytes; a copy of more would cost memory


class _Pickler(pickle.Pickler):
    """Pickles tensors of all dtypes.

    torch 2.13 cannot load a pickled tensor of uint32 or float8: "type object
    'torch.storage.UntypedStorage' has no attribute 'dtype'".
    """

    def reducer_override(self, value: Any) -> Any:
        """Return how to rebuild a tensor whose storage has no class."""
        torch = sys.modules.get("torch")  # a message without tensors does not import it
        if torch is None or type(value) is not torch.Tensor:
            return NotImplemented
        name = str(value.dtype).removeprefix("torch.")
        if not name.startswith(("uint", "float8", "float4")) or name == "uint8":
            return NotImplemented
        plain = value.detach().cpu().contiguous().reshape(-1).view(torch.uint8)
        return _tensor, (name, tuple(value.shape), plain.numpy().tobytes())


def _tensor(dtype: str, shape: Sequence[int], data: bytes) -> Any:
    import torch

    flat = torch.frombuffer(bytearray(data), dtype=torch.uint8) if data else torch.empty(0)
    return flat.to(torch.uint8).view(getattr(torch, dtype)).reshape(shape)


def send(pipe: int, message: Any) -> None:
    """Write a message; a small one in one piece, also if threads send at the same time."""
    written = io.BytesIO()
    _Pickler(written, protocol=5).dump(message)
    data = written.getbuffer()
    length = _LENGTH.pack(len(data))
    for part in (length + bytes(data),) if len(data) < _SMALL else (length, data):
        rest = memoryview(part)
        while rest:
            rest = rest[os.write(pipe, rest) :]


def take(received: bytearray) -> tuple[Any] | None:
    """Remove the first message from what a pipe sent; return None if it is not complete."""
    if len(received) < _LENGTH.size:
        return None
    end = _LENGTH.size + _LENGTH.unpack_from(received)[0]
    if len(received) < end:
        return None
    with memoryview(received) as data, data[_LENGTH.size : end] as body:
        message = pickle.loads(body)
    del received[:end]
    return (message,)


class Channel:
    """The child's side: messages to the parent, and its requests if the child was spawned."""

    def __init__(self, messages: int, requests: int = -1) -> None:
        self._messages, self.requests = messages, requests
        self._source = os.fdopen(requests, "rb") if requests >= 0 else None

    def send(self, message: Any) -> None:
        """Send a message to the parent."""
        send(self._messages, message)

    def __iter__(self) -> Iterator[Any]:
        """Yield requests until the parent closes the child or ends."""
        assert self._source is not None
        while header := self._source.read(_LENGTH.size):
            yield pickle.loads(self._source.read(*_LENGTH.unpack(header)))
