"""`TorchMetalKernel`: a computation in Metal for devices, with a reference in torch."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from coreai.authoring import MetalParameter

from ..errors import KernelError
from ..ir.metal import Kernel
from . import checks, definition, torch_op
from .emulator import Constants
from .lowering import KernelLowering
from .running import Runner
from .verification import Verification, draws


class TorchMetalKernel:
    """A compute kernel whose body is Metal source and whose reference is a torch function.

    A call runs the reference; conversion replaces it with the kernel. In Metal the first index of
    a tensor is the last axis in torch.

    ```python
    from coreai_torch import MetalParameter, TorchMetalKernel


    def add(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


    kernel = TorchMetalKernel(
        "vector_add",
        input_names=["x", "y"],
        result_names=["out"],
        src="out[id] = x[id] + y[id];",
        torch_defn=add,
        metal_params=[MetalParameter("id", "uint", "thread_position_in_grid")],
    )
    ```

    Args:
        name: the name of the kernel: letters, digits and underscores.
        input_names: the names of the arguments in the source, in the order of `torch_defn`.
        result_names: the names of the results in the source.
        src: the body; signature and includes are generated.
        torch_defn: the reference. Its parameters are annotated `torch.Tensor`, `int`, `float` or
            `bool`, its result a tensor, a list of tensors or a tuple of known length.
        metal_params: the parameters that describe the thread, such as its position in the grid.
        helper_src: functions and constants that are placed before the kernel.
        template_dtypes: `{"x": "TYPE"}` replaces every `TYPE` by the Metal type of `x`.
    """

    def __init__(
        self,
        name: str,
        input_names: Sequence[str],
        result_names: Sequence[str],
        src: str,
        torch_defn: Callable[..., Any],
        metal_params: Sequence[MetalParameter] | None = None,
        helper_src: str | None = None,
        template_dtypes: Mapping[str, str] | None = None,
    ) -> None:
        """Check the parts against each other and define the torch op."""
        self._kernel = Kernel(
            name,
            tuple(input_names),
            tuple(result_names),
            src,
            helper_src or "",
            tuple(metal_params or ()),
            dict(template_dtypes or {}),
        )
        self._definition = definition.read(name, torch_defn, result_names, input_names)
        checks.kernel(self._kernel)
        self._op = torch_op.define(self._kernel, self._definition)
        self._runner = Runner(self._kernel, self._definition)

    @property
    def name(self) -> str:
        """Return the name of the kernel."""
        return self._kernel.name

    def __repr__(self) -> str:
        """Return the name, inputs and results."""
        inputs, results = ", ".join(self._kernel.inputs), ", ".join(self._kernel.results)
        return f"TorchMetalKernel({self.name}: {inputs} -> {results})"

    def __call__(
        self,
        *args: Any,
        threads_per_grid: Sequence[Any],
        threads_per_thread_group: Sequence[Any],
        result_shapes: Sequence[Sequence[Any]],
    ) -> Any:
        """Run the reference; in an export, add a node that converts to the Metal kernel.

        Args:
            args: one for each of `input_names`.
            threads_per_grid: the number of threads `(x, y, z)`; sizes may be symbolic.
            threads_per_thread_group: the number of threads that share memory, 1,024 at most.
            result_shapes: one for each of `result_names`.
        """
        given = self._arguments(args)
        launch = self._launch(threads_per_grid, threads_per_thread_group, result_shapes)
        results = self._op(*given, *launch)
        return tuple(results) if self._definition.returns is definition.Returns.TUPLE else results

    def _launch(self, grid: Any, group: Any, result_shapes: Any) -> list[list[Any]]:
        name = self.name
        per_grid = checks.threads(name, "threads_per_grid", grid)
        per_group = checks.threads(name, "threads_per_thread_group", group)
        checks.group(name, per_group)
        return [per_grid, per_group, *checks.shapes(name, self._kernel.results, result_shapes)]

    def _arguments(self, args: Sequence[Any]) -> list[Any]:
        """Add the defaults and check the type of each argument."""
        kinds, defaults = self._definition.kinds, self._definition.defaults
        missing = len(kinds) - len(args)
        if not 0 <= missing <= len(defaults):
            raise TypeError(
                f"Metal kernel {self.name!r} takes {len(kinds)} arguments, "
                f"{list(self._kernel.inputs)}, but {len(args)} were given"
            )
        given = [*args, *defaults[len(defaults) - missing :]]
        names = self._kernel.inputs
        return [self._argument(n, k, a) for n, k, a in zip(names, kinds, given, strict=True)]

    def _argument(self, name: str, kind: Any, given: Any) -> Any:
        if kind is torch.Tensor:
            if not isinstance(given, torch.Tensor):
                raise self._wrong(name, "torch.Tensor", given)
            checks.dtype(self.name, f"the input {name!r}", given.dtype)
            return given
        number = isinstance(given, bool | torch.SymBool) if kind is bool else _is_number(given)
        if not number or (kind is int and isinstance(given, float | torch.SymFloat)):
            raise self._wrong(name, kind.__name__, given)
        return float(given) if kind is float and isinstance(given, int) else given

    def _wrong(self, name: str, wanted: str, given: Any) -> TypeError:
        return TypeError(
            f"Metal kernel {self.name!r}: the input {name!r} is declared as {wanted}, but "
            f"{given!r} ({type(given).__name__}) was given"
        )

    def emulate(
        self,
        *args: Any,
        threads_per_grid: Sequence[int],
        threads_per_thread_group: Sequence[int],
        result_shapes: Sequence[Sequence[int]],
        function_constants: Constants | None = None,
        timeout: float = 300.0,
    ) -> Any:
        """Run the Metal source, compiled for the CPU; the results have the form of a call."""
        launched = self._launch(threads_per_grid, threads_per_thread_group, result_shapes)
        results = self._runner.emulate(self._arguments(args), launched, function_constants, timeout)
        return self._definition.returned(results)

    def verify(
        self,
        *args: Any,
        threads_per_grid: Sequence[int],
        threads_per_thread_group: Sequence[int],
        result_shapes: Sequence[Sequence[int]],
        function_constants: Constants | None = None,
        timeout: float = 300.0,
        trials: int = 3,
        tolerance: float | None = None,
    ) -> Verification:
        """Compare the Metal source with `torch_defn`, and check every memory access.

        A tensor on the meta device is replaced by random values of its shape and dtype, new ones
        in each of the `trials`. The result is true if nothing was found. Otherwise it lists
        differences, accesses out of bounds, data races, and elements that are read before they
        are written or never written.
        """
        launched = self._launch(threads_per_grid, threads_per_thread_group, result_shapes)
        for given in draws(self._arguments(args), trials):
            found = self._runner.verify(given, launched, function_constants, timeout, tolerance)
            if not found:
                break
        return found

    def _lowering(self) -> KernelLowering:
        """Return the registry entry of the kernel's op."""
        return KernelLowering(self._op, self._kernel, self._definition)


def _is_number(given: Any) -> bool:
    numbers = int | float | torch.SymInt | torch.SymFloat
    return isinstance(given, numbers) and not isinstance(given, bool)


def lowerings(kernels: Any) -> list[KernelLowering]:
    """Return the registry entries of kernels."""
    listed = list(kernels) if isinstance(kernels, Iterable) else [kernels]
    for kernel in listed:
        if not isinstance(kernel, TorchMetalKernel):
            raise KernelError(
                f"register_custom_kernels takes TorchMetalKernel objects, not {kernel!r} "
                f"({type(kernel).__name__})\n  try   call register_custom_kernels([kernel])"
            )
    return [kernel._lowering() for kernel in listed]
