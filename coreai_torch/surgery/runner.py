"""Run the parts of a split model one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ..asset.reading import Type, read
from ..errors import ArgumentTypeError, NamingError, VerificationInputError
from ..numerics.arrays import array, tensor
from ..verification.engines import Engine, start
from ..verification.isolation import ProgramFile
from ..verification.runner import Runner
from .manifest import Manifest


def load_parts(folder: Path | str, *, engine: str = "runtime", timeout: float = 600.0) -> Parts:
    """Load a folder that `split` wrote; call the result with the inputs of the model.

    ```python
    with coreai_torch.load_parts("net-parts") as net:
        y = net(x)["y"]
    ```

    Args:
        folder: the folder with the parts and `manifest.json`.
        engine: "runtime" runs each part in a separate process, "torch" op by op in torch.
        timeout: the limit in seconds for each step of native code.
    """
    if engine not in ("runtime", "torch"):
        raise VerificationInputError(f"no engine {engine!r}\n  try   pass 'runtime' or 'torch'")
    return Parts(Path(folder), Engine(engine), timeout)


class Parts:
    """A split model. States start as zeros and stay between calls; a context manager."""

    def __init__(self, folder: Path, engine: Engine, timeout: float) -> None:
        self.manifest = Manifest.read(folder)
        self._runners: list[Runner] = []
        self.inputs: dict[str, Type] = {}
        self.states: dict[str, Type] = {}
        self._values: dict[str, Any] = {}
        for part in self.manifest.parts:
            self._read_ports(folder / part.file)
        for part in self.manifest.parts:
            source = ProgramFile(asset=(folder / part.file).absolute())
            self._runners.append(
                start(engine, source, entrypoint="main", optimize=False, timeout=timeout)
            )

    def _read_ports(self, asset: Path) -> None:
        for port in read(asset, largest=0).functions["main"].inputs:
            if port.type.kind == "handle":
                self.states[port.name] = port.type
            elif port.name in self.manifest.inputs:
                self.inputs.setdefault(port.name, port.type)

    def __call__(self, *inputs: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return the outputs by name; pass inputs in order, by keyword or as a mapping."""
        names = self.manifest.inputs
        if len(inputs) == 1 and isinstance(inputs[0], Mapping):
            given = {**inputs[0], **named}
        elif len(inputs) > len(names):
            raise ArgumentTypeError(
                f"the model takes the inputs {list(names)}, but got {len(inputs)}\n"
                "  try   pass one value for each"
            )
        else:
            given = {**dict(zip(names, inputs, strict=False)), **named}
        self._check_names(given)
        values = {name: array(value) for name, value in given.items()}
        for part, runner in zip(self.manifest.parts, self._runners, strict=True):
            states = {name: self._state(name) for name in part.states}
            outputs, after = runner.call({name: values[name] for name in part.inputs}, states)
            values.update(outputs)
            self._values.update(after)
        return {name: tensor(values[name]) for name in self.manifest.outputs}

    def _check_names(self, given: Mapping[str, Any]) -> None:
        missing = [name for name in self.inputs if name not in given]
        unknown = [name for name in given if name not in self.manifest.inputs]
        if missing or unknown:
            problems = [f"{missing} are missing"] * bool(missing)
            problems += [f"{unknown} are unknown"] * bool(unknown)
            raise NamingError(
                f"wrong inputs: {', '.join(problems)}\n  try   pass {list(self.manifest.inputs)}"
            )

    def _state(self, name: str) -> Any:
        if name not in self._values:
            type_ = self.states[name]
            if any(size < 0 for size in type_.shape):
                raise VerificationInputError(
                    f"the state {name!r} is {type_}, which has dynamic sizes\n"
                    f"  try   call set_state({name!r}, value) first"
                )
            self._values[name] = array(torch.zeros(type_.shape, dtype=type_.dtype))
        return self._values[name]

    def set_state(self, name: str, value: torch.Tensor) -> None:
        """Set a state; the next call starts from it."""
        if name not in self.states:
            raise NamingError(f"no state {name!r}\n  try   pass one of {list(self.states)}")
        self._values[name] = array(value)

    def state(self, name: str) -> torch.Tensor:
        """Return a state after the last call."""
        return tensor(self._state(name))

    def reset(self) -> None:
        """Clear the states: the next call starts from zeros."""
        self._values.clear()

    def close(self) -> None:
        """End the processes."""
        for runner in self._runners:
            runner.close()

    def __enter__(self) -> Parts:
        """Return the model itself."""
        return self

    def __exit__(self, *ended: object) -> None:
        """End the processes."""
        self.close()
