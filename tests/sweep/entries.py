"""Read PyTorch's op database: entries by name, their dtypes and samples."""

from __future__ import annotations

import functools
import random
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

DTYPES = {
    "f32": torch.float32,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "int32": torch.int32,
    "int64": torch.int64,
    "bool": torch.bool,
    "complex64": torch.complex64,
}
REAL = tuple(name for name in DTYPES if name != "complex64")


@functools.cache
def entries() -> dict[str, Any]:
    """Return all entries by full name, for example `nn.functional.softmin.with_dtype`."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.testing._internal.common_methods_invocations import op_db
    named = {op.full_name: op for op in op_db}
    if len(named) != len(op_db):
        raise AssertionError("two entries of op_db share a full name")
    return named


def dtypes(name: str) -> list[str]:
    """Return the dtypes to judge an entry with; complex only if it supports no real dtype."""
    supported = entries()[name].supported_dtypes("cpu")
    real = [d for d in REAL if DTYPES[d] in supported]
    return real or [d for d in ("complex64",) if DTYPES[d] in supported]


def samples(name: str, dtype: str) -> list[Any]:
    """Return all samples of an entry, the same in every process."""
    torch.manual_seed(0)
    random.seed(0)
    np.random.seed(0)
    given = entries()[name].sample_inputs("cpu", DTYPES[dtype], requires_grad=False)
    return list(given)


def chosen(every: list[Any], most: int | None = None) -> list[int]:
    """Return the indices of the samples to judge: evenly spread, with a 0-d and an empty one."""
    if most is None or len(every) <= most:
        return list(range(len(every)))
    spread = {i * len(every) // most for i in range(most)}
    return sorted(spread | set(_first(every, _is_scalar)) | set(_first(every, _is_empty)))


def text(sample: Any) -> str:
    """Return a sample as one line: shapes, dtypes and other arguments."""
    return " ".join(str(sample.summary()).split())[:400]


def _first(every: list[Any], wanted: Any) -> Iterator[int]:
    for i, sample in enumerate(every):
        if wanted(sample.input):
            yield i
            return


def _is_scalar(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.dim() == 0


def _is_empty(given: Any) -> bool:
    return isinstance(given, torch.Tensor) and given.numel() == 0
