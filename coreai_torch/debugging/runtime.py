"""Load a copy of a program whose ops are marked, so that values and times can be assigned."""

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
from ..asset.worker import to_numpy
from .graph import operation_ids


@dataclass(frozen=True)
class Executed:
    """A step of the runtime: the operation it belongs to, and the results it computes."""

    operation: int | None
    makes: tuple[tuple[int, int], ...]  # the step's output, and the operation's output


@dataclass
class Session:
    """A loaded model, and its executed steps by id."""

    model: AIModel
    executed: Mapping[int, Executed]

    def load(self, function: str, **hooks: Any) -> Any:
        """Load an entrypoint with a logger or a profiler."""
        names = list(self.model.function_names)
        if function not in names:
            raise KeyError(f"there is no entrypoint {function!r}; the program has {names}")
        return self.model.load_function(function, **hooks)


@asynccontextmanager
async def running(source: reading.Source, program: reading.Program) -> AsyncIterator[Session]:
    """Load a marked copy of the program; `program` is the source after reading."""
    ids = [number for _, _, number in operation_ids(program)]
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        asset = marked(source, ids, Path(folder))
        async with asset.executable() as model:
            yield Session(model, dict(_executed(model)))


def _executed(model: AIModel) -> Iterator[tuple[int, Executed]]:
    for info in json.loads(model._debug_infos or b"[]"):
        for op in info.get("operations", ()):
            entries = [(entry["key"], _unwrap(entry["value"])) for entry in op["metadatas"]]
            own = [v["value"] for k, v in entries if k == "op_id" and v["type"] == "coreai"]
            maps = [m for k, v in entries if k == "output_maps" for m in v]
            makes = tuple(
                (m["target"]["output"], m["source"]["output"])
                for m in maps
                if m["source"]["level"] == "coreai" and own and m["source"]["id"] == own[0]
            )
            yield op["odixId"], Executed(own[0] if own else None, makes)


def _unwrap(value: Mapping[str, Any]) -> Any:
    """Return a value of the runtime's JSON, which wraps each value in its type name."""
    ((kind, inside),) = value.items()
    content = inside["_0"] if isinstance(inside, Mapping) and "_0" in inside else inside
    if kind == "dictionary":
        return {key: _unwrap(inner) for key, inner in content.items()}
    if kind == "array":
        return [_unwrap(inner) for inner in content]
    return content


def copied(array: Any) -> np.ndarray[Any, Any]:
    """Return a copy of a logged value: the runtime reuses the buffer."""
    return np.array(to_numpy(NDArray._wrap(array)), copy=True)
