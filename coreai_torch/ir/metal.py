"""Metal kernels: the generated source, its name, and the op with both."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from coreai._compiler.ir import RankedTensorType, Value
from coreai.authoring import CustomMetalKernel, MetalParameter
from coreai.authoring.metal import TensorMeta

from . import shapes, types
from .casting import cast
from .shapes import Dim

# The Metal type of a tensor's elements, by the dtype that remains after narrowing.
METAL_TYPES: dict[torch.dtype, str] = {
    dtype: CustomMetalKernel.metal_type_mappings[name]
    for name, dtype in types.BY_NAME.items()
    if name in CustomMetalKernel.metal_type_mappings
}


@dataclass(frozen=True)
class Kernel:
    """A kernel as the author wrote it."""

    name: str
    inputs: tuple[str, ...]
    results: tuple[str, ...]
    body: str
    helpers: str = ""
    parameters: tuple[MetalParameter, ...] = ()
    templates: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Operand:
    """The rank and dtype of an input or result, which the generated signature depends on."""

    rank: int
    dtype: torch.dtype

    @property
    def metal(self) -> str:
        """The Metal type of the elements; a tensor of booleans is one of bytes in Metal."""
        if self.dtype == torch.bool and self.rank:
            return METAL_TYPES[torch.uint8]
        return METAL_TYPES[types.narrow(self.dtype)]


@dataclass(frozen=True)
class Generated:
    """A complete Metal source with one entry point, and its parts."""

    name: str
    text: str
    helpers: str
    body: str


def generate(kernel: Kernel, inputs: Sequence[Operand], results: Sequence[Operand]) -> Generated:
    """Return the source for operands of these ranks and dtypes; equal ones give equal names."""
    words = {
        word: operand.metal
        for name, operand in zip(kernel.inputs, inputs, strict=True)
        if (word := kernel.templates.get(name)) is not None
    }
    helpers, body = _filled(kernel.helpers, words), _filled(kernel.body, words)
    guarded, opening = _guarded(helpers)
    authored = CustomMetalKernel(
        kernel.name,
        list(kernel.inputs),
        list(kernel.results),
        # On separate lines: a directive must start a line, and `// this` must end before the brace.
        f"{opening}\n{body}\n",
        list(kernel.parameters),
        guarded,
    )
    metas = [_metas(kernel.inputs, inputs), _metas(kernel.results, results)]
    unnamed = authored.template_kernel_src(kernel.name, *metas)
    name = f"{kernel.name}_{hashlib.sha256(unnamed.encode()).hexdigest()[:8]}"
    return Generated(name, authored.template_kernel_src(name, *metas), helpers, body)


def _filled(source: str, words: Mapping[str, str]) -> str:
    """Replace each template word once, the longest first."""
    if not words:
        return source
    pattern = "|".join(re.escape(w) for w in sorted(words, key=len, reverse=True))
    return re.sub(pattern, lambda found: words[found[0]], source)


def _guarded(helpers: str) -> tuple[str, str]:
    """Wrap helpers so that several kernels of one library can include them.

    The sources of a program may be compiled together: two kernels with the same helpers would
    define them twice, and two with different helpers of one name would clash. So they stand
    behind a guard and, unless they hold directives, in a namespace that the kernel opens.
    """
    if not helpers.strip():
        return "", ""
    mark = hashlib.sha256(helpers.encode()).hexdigest()[:12]
    name = f"coreai_helpers_{mark}"
    inside, opening = helpers, ""
    if not re.search(r"^\s*#", helpers, re.MULTILINE):
        inside, opening = f"namespace {name} {{\n{helpers}\n}}", f" using namespace {name};"
    return f"#ifndef {name.upper()}\n#define {name.upper()}\n{inside}\n#endif", opening


def _metas(names: Sequence[str], operands: Sequence[Operand]) -> list[TensorMeta]:
    return [TensorMeta(n, o.rank, o.metal) for n, o in zip(names, operands, strict=True)]


def emit(
    kernel: Kernel,
    inputs: Sequence[Value],
    threads_per_grid: Sequence[Dim],
    threads_per_thread_group: Sequence[Dim],
    result_shapes: Sequence[Sequence[Dim]],
    result_types: Sequence[RankedTensorType],
) -> list[Value]:
    """Emit the kernel op, with operands moved to Metal buffers and results back."""
    takes = [_operand(v.type) for v in inputs]
    gives = [_operand(t) for t in result_types]
    source = generate(kernel, takes, gives)
    authored = CustomMetalKernel(
        kernel.name, list(kernel.inputs), list(kernel.results), kernel.body, []
    )
    taken, made = [_as_bytes(v) for v in inputs], [_type_as_bytes(t) for t in result_types]
    # The default name is random, and two conversions would differ in their bytes.
    key = tuple((t.rank, METAL_TYPES[types.dtype_of(t)]) for t in (*(v.type for v in taken), *made))
    authored.kernel_cache[key] = (source.name, source.text)
    sizes = [threads_per_grid, threads_per_thread_group, *result_shapes]
    operands = [*taken, *(shapes.vector(list(s), torch.uint32) for s in sizes)]
    results = authored._construct_kernel_op(operands, made)
    return [cast(r, types.dtype_of(t)) for r, t in zip(results, result_types, strict=True)]


def _as_bytes(value: Value) -> Value:
    """Cast booleans to bytes, because the op rejects booleans."""
    return cast(value, torch.uint8) if types.dtype_of(value.type) == torch.bool else value


def _type_as_bytes(type_: RankedTensorType) -> RankedTensorType:
    if types.dtype_of(type_) != torch.bool:
        return type_
    return RankedTensorType.get(type_.shape, types.element(torch.uint8))


def _operand(type_: RankedTensorType) -> Operand:
    return Operand(type_.rank, types.dtype_of(type_))
