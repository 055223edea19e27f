"""What can be known to be wrong with a kernel before any device sees it."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from coreai.authoring import MetalParameter

from ..errors import KernelError
from ..ir.metal import METAL_TYPES, Kernel
from ..ir.types import narrow
from ..torch_compat import check

PARAMETER_LIMIT = 31  # of a Metal function
THREAD_LIMIT = 1024  # of one threadgroup, on every Apple GPU

# What a compute function can be told about the thread it runs in.
ATTRIBUTES = frozenset(
    {
        "dispatch_quadgroups_per_threadgroup",
        "dispatch_simdgroups_per_threadgroup",
        "dispatch_threads_per_threadgroup",
        "grid_origin",
        "grid_size",
        "quadgroup_index_in_threadgroup",
        "quadgroups_per_threadgroup",
        "simdgroup_index_in_threadgroup",
        "simdgroups_per_threadgroup",
        "thread_execution_width",
        "thread_index_in_quadgroup",
        "thread_index_in_simdgroup",
        "thread_index_in_threadgroup",
        "thread_position_in_grid",
        "thread_position_in_threadgroup",
        "threadgroup_position_in_grid",
        "threadgroups_per_grid",
        "threads_per_grid",
        "threads_per_simdgroup",
        "threads_per_threadgroup",
    }
)
# Words that a name cannot be: the language's own, and those of the types and address spaces.
KEYWORDS = frozenset(
    """
    auto bfloat bool break case char class const constant constexpr continue default delete device
    do double else enum false float for fragment half if inline int kernel long namespace new
    operator return short signed sizeof static struct switch template this thread threadgroup true
    typedef typename uchar uint ulong union unsigned ushort using vertex void volatile while
    """.split()  # noqa: SIM905  a list of this length is easier to read as text
)
_IDENTIFIER = re.compile(r"[A-Za-z_]\w*")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)


def kernel(kernel: Kernel) -> None:
    """Raise for names, attributes, templates or sources that no compiler could accept."""
    names = [*kernel.inputs, *kernel.results, *(p.name for p in kernel.parameters)]
    for name in (kernel.name, *names):
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name in KEYWORDS:
            raise KernelError(
                f"Metal kernel {kernel.name!r}: {name!r} is no name in Metal\n"
                "  try   letters, digits and underscores, a letter first, no word of the language"
            )
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise KernelError(
            f"Metal kernel {kernel.name!r}: {', '.join(map(repr, twice))} names more than one of "
            "its inputs, results and parameters\n  try   a name of its own for each"
        )
    if not kernel.results:
        raise KernelError(f"Metal kernel {kernel.name!r} has no results\n  try   result_names")
    if len(names) > PARAMETER_LIMIT:
        raise KernelError(
            f"Metal kernel {kernel.name!r} has {len(names)} inputs, results and parameters; a "
            f"Metal function takes {PARAMETER_LIMIT} at most\n  try   fewer, larger tensors"
        )
    _parameters(kernel.name, kernel.parameters)
    _templates(kernel.name, kernel.inputs, kernel.templates)
    _untouched(kernel.name, names, kernel.templates.values())
    _mentions(kernel)


def _parameters(name: str, parameters: Sequence[MetalParameter]) -> None:
    for parameter in parameters:
        if not isinstance(parameter, MetalParameter):
            raise TypeError(
                f"Metal kernel {name!r}: metal_params holds {parameter!r}\n"
                "  try   MetalParameter('gid', 'uint3', 'thread_position_in_grid')"
            )
        if parameter.attr not in ATTRIBUTES:
            raise KernelError(
                f"Metal kernel {name!r}: parameter {parameter.name!r} has the attribute "
                f"{parameter.attr!r}, which Metal has not\n  try   one of "
                + ", ".join(sorted(ATTRIBUTES))
            )


def _templates(name: str, inputs: Sequence[str], templates: Mapping[str, str]) -> None:
    unknown = sorted(set(templates) - set(inputs))
    if unknown:
        raise KernelError(
            f"Metal kernel {name!r}: template_dtypes names {', '.join(map(repr, unknown))}, but "
            f"its inputs are {list(inputs)}\n  try   one of these"
        )
    words = list(templates.values())
    twice = sorted({w for w in words if words.count(w) > 1})
    if twice or not all(words):
        raise KernelError(
            f"Metal kernel {name!r}: template_dtypes gives {words}\n"
            "  try   a word of its own for each input"
        )


def _untouched(name: str, names: Sequence[str], words: Iterable[str]) -> None:
    """A word is replaced wherever it stands, also inside a name, which would be lost."""
    for word in words:
        hit = [n for n in names if word in n]
        if hit:
            raise KernelError(
                f"Metal kernel {name!r}: the template word {word!r} would be replaced inside the "
                f"name {hit[0]!r} too\n  try   a word that is part of no name, such as 'TYPE'"
            )


def _mentions(kernel: Kernel) -> None:
    """An input or result that the source never names is a slip of one of the two."""
    source = _COMMENT.sub(" ", f"{kernel.helpers}\n{kernel.body}")
    words = set(_IDENTIFIER.findall(source))
    typed = {name for name, word in kernel.templates.items() if word in source}
    for what, names in (("input", kernel.inputs), ("result", kernel.results)):
        for name in names:
            if name not in words and name not in typed:
                raise KernelError(
                    f"Metal kernel {kernel.name!r}: its source never names the {what} {name!r}\n"
                    f"  try   using {name!r} in src, or leaving it out of {what}_names"
                )


def threads(name: str, what: str, given: Any) -> list[Any]:
    """A grid or threadgroup size: three positive numbers, symbolic ones taken on trust."""
    sizes = list(given) if isinstance(given, list | tuple) else None
    if sizes is None or len(sizes) != 3 or not all(_is_size(s) for s in sizes):
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {given!r}\n  try   three whole numbers (x, y, z)"
        )
    if any(isinstance(s, int) and s < 1 for s in sizes):
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {tuple(sizes)}, so no thread would run\n"
            "  try   at least 1 along each axis"
        )
    return sizes


def group(name: str, sizes: Sequence[Any]) -> None:
    """Refuse a threadgroup that no GPU could hold."""
    if all(type(s) is int for s in sizes) and math.prod(sizes) > THREAD_LIMIT:
        raise KernelError(
            f"Metal kernel {name!r}: threads_per_thread_group is {tuple(sizes)}, which is "
            f"{math.prod(sizes)} threads; a threadgroup holds {THREAD_LIMIT} at most\n"
            "  try   a smaller threadgroup: the grid may have as many of them as it likes"
        )


def shapes(name: str, results: Sequence[str], given: Any) -> list[list[Any]]:
    """One shape for each result, each of at least one axis."""
    listed = isinstance(given, list | tuple) and all(isinstance(s, list | tuple) for s in given)
    if not listed or len(given) != len(results):
        raise KernelError(
            f"Metal kernel {name!r}: result_shapes is {given!r}, but its results are "
            f"{list(results)}\n  try   a list of shapes, one for each result"
        )
    found = [list(shape) for shape in given]
    for result, shape in zip(results, found, strict=True):
        if not shape or not all(_is_size(s) for s in shape):
            raise KernelError(
                f"Metal kernel {name!r}: result_shapes gives {shape} for {result!r}\n"
                "  try   whole numbers, at least one: a Metal tensor has one axis or more"
            )
    return found


def _is_size(size: Any) -> bool:
    return isinstance(size, int | torch.SymInt) and not isinstance(size, bool)


def dtype(name: str, what: str, given: torch.dtype) -> None:
    """Refuse elements that Metal has no type for."""
    if narrow(given) not in METAL_TYPES:
        known = ", ".join(str(d).removeprefix("torch.") for d in METAL_TYPES)
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {given}, a type that Metal has not\n"
            f"  try   one of {known}, and the 64-bit types, which are narrowed to 32"
        )


def shape(name: str, result: str, promised: Sequence[Any], made: Sequence[Any]) -> None:
    """Hold what `result_shapes` says to what the reference makes."""
    wrong = len(promised) != len(made) or any(
        _differ(a, b) for a, b in zip(promised, made, strict=True)
    )
    if wrong:
        raise KernelError(
            f"Metal kernel {name!r}: result_shapes gives {list(promised)} for {result!r}, but "
            f"torch_defn returns {list(made)}\n  try   result_shapes that follow the inputs' sizes"
        )


def results(kernel: Kernel, made: Sequence[Any], result_shapes: Sequence[Any]) -> None:
    """Hold what the reference made to the names and shapes that are promised."""
    name, names = kernel.name, kernel.results
    if len(made) != len(names) or not all(isinstance(r, torch.Tensor) for r in made):
        raise KernelError(
            f"Metal kernel {name!r}: torch_defn returned {made!r}, but its results are "
            f"{list(names)}\n  try   one tensor for each"
        )
    for result, tensor, promised in zip(names, made, result_shapes, strict=True):
        dtype(name, f"the result {result!r}", tensor.dtype)
        shape(name, result, promised, tensor.shape)


def _differ(promised: Any, made: Any) -> bool:
    if isinstance(promised, int) and isinstance(made, int):
        return promised != made
    if isinstance(promised, int) or isinstance(made, int):
        # A number that fits the example, where the model knows only a symbol.
        return not _always(promised == made)
    check(promised == made)
    return False


def _always(condition: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(condition))
