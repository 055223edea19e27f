"""A copy of a program on the run time, each op marked so that values and times find their op."""

from __future__ import annotations

import json
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from coreai.runtime import AIModel, NDArray

from ..asset import reading
from ..asset.marking import marked
from .graph import operation_ids


@dataclass(frozen=True)
class Executed:
    """An op as the run time executes it: the op it stands for, and which results it makes."""

    operation: int | None
    makes: tuple[tuple[int, int], ...]  # its own output, and that of the operation


@dataclass
class Session:
    """A loaded model, and what its executed ops stand for."""

    model: AIModel
    executed: Mapping[int, Executed]

    def load(self, function: str, **hooks: Any) -> Any:
        """An entrypoint with a logger or a profiler."""
        names = list(self.model.function_names)
        if function not in names:
            raise KeyError(f"no entrypoint {function!r}; the program has {names}")
        return self.model.load_function(function, **hooks)


@asynccontextmanager
async def running(source: reading.Source, program: reading.Program) -> AsyncIterator[Session]:
    """A marked copy of the program, loaded; `program` is the source as it was read."""
    ids = [number for _, _, number in operation_ids(program)]
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        asset = marked(source, ids, Path(folder))
        async with asset.executable() as model:
            yield Session(model, dict(_executed(model)))


def _executed(model: AIModel) -> Iterator[tuple[int, Executed]]:
    for info in json.loads(model._debug_infos or b"[]"):
        for op in info.get("operations", ()):
            said = [(entry["key"], _plain(entry["value"])) for entry in op["metadatas"]]
            own = [v["value"] for k, v in said if k == "op_id" and v["type"] == "coreai"]
            maps = [m for k, v in said if k == "output_maps" for m in v]
            makes = tuple(
                (m["target"]["output"], m["source"]["output"])
                for m in maps
                if m["source"]["level"] == "coreai" and own and m["source"]["id"] == own[0]
            )
            yield op["odixId"], Executed(own[0] if own else None, makes)


def _plain(value: Mapping[str, Any]) -> Any:
    """What the run time's JSON wraps in the names of its types."""
    ((kind, held),) = value.items()
    content = held["_0"] if isinstance(held, Mapping) and "_0" in held else held
    if kind == "dictionary":
        return {key: _plain(inner) for key, inner in content.items()}
    if kind == "array":
        return [_plain(inner) for inner in content]
    return content


def copied(array: Any) -> np.ndarray[Any, Any]:
    """A logged value in memory of its own: the run time writes over the buffer it lent."""
    return np.array(NDArray._wrap(array).numpy(), copy=True)
