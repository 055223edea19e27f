"""Class labels of outputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..capture.io_plan import IOPlan, Output
from ..errors import NamingError


def check_labels(labels: Any, ports: IOPlan) -> dict[str, list[str]]:
    """Return the labels by output; each output must have one element for each label."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        texts = _texts("labels", labels)
        fits = [port for port in ports.outputs if _classes(port) == len(texts)]
        if not fits:
            sizes = {port.name: _classes(port) for port in ports.outputs}
            raise NamingError(
                f"there are {len(texts)} labels, but the last sizes of the outputs are {sizes}\n"
                "  try   pass one label for each element of the last axis of an output"
            )
        return {fits[0].name: texts}
    by_name = {port.name: port for port in ports.outputs}
    found = {}
    for name, given in labels.items():
        if name not in by_name:
            raise NamingError(
                f"labels: no output is called {name!r}\n  try   pass one of {list(by_name)}"
            )
        texts, count = _texts(f"labels[{name!r}]", given), _classes(by_name[name])
        if count is not None and count != len(texts):
            raise NamingError(
                f"the output {name!r} has {count} classes, but there are {len(texts)} labels\n"
                "  try   pass one label for each element of its last axis"
            )
        found[name] = texts
    return found


def _classes(port: Output) -> int | None:
    """Return the last size of an output; None if it is dynamic or the output has no axes."""
    node = port.value
    value = node.meta.get("val") if isinstance(node, torch.fx.Node) else None
    if not isinstance(value, torch.Tensor) or not value.ndim:
        return None
    return int(value.shape[-1]) if isinstance(value.shape[-1], int) else None


def _texts(what: str, given: Any) -> list[str]:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    if not listed or not given or not all(isinstance(text, str) for text in given):
        raise NamingError(f"{what} is {given!r}\n  try   pass a list of texts")
    return list(given)
