"""Checks of a kernel's definition and calls that need no device."""

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

# Attributes of the parameters that describe the current thread.
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
# Words that cannot be names: keywords, types and address spaces of the language.
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
    """Raise for names, attributes, templates or sources that no compiler accepts."""
    names = [*kernel.inputs, *kernel.results, *(p.name for p in kernel.parameters)]
    for name in (kernel.name, *names):
        if not isinstance(name, str) or not _IDENTIFIER.fullmatch(name) or name in KEYWORDS:
            raise KernelError(
                f"Metal kernel {kernel.name!r}: {name!r} is not a valid name in Metal\n"
                "  try   use letters, digits and underscores, a letter first, and no keyword"
            )
    twice = sorted({n for n in names if names.count(n) > 1})
    if twice:
        raise KernelError(
            f"Metal kernel {kernel.name!r}: {', '.join(map(repr, twice))} names more than one of "
            "its inputs, results and parameters\n  try   use a different name for each"
        )
    if not kernel.results:
        raise KernelError(f"Metal kernel {kernel.name!r} has no results\n  try   pass result_names")
    if len(names) > PARAMETER_LIMIT:
        raise KernelError(
            f"Metal kernel {kernel.name!r} has {len(names)} inputs, results and parameters; a "
            f"Metal function takes {PARAMETER_LIMIT} at most\n  try   use fewer, larger tensors"
        )
    _check_parameters(kernel.name, kernel.parameters)
    _check_templates(kernel.name, kernel.inputs, kernel.templates)
    _check_template_words(kernel.name, names, kernel.templates.values())
    _check_source_uses_names(kernel)


def _check_parameters(name: str, parameters: Sequence[MetalParameter]) -> None:
    for parameter in parameters:
        if not isinstance(parameter, MetalParameter):
            raise TypeError(
                f"Metal kernel {name!r}: metal_params contains {parameter!r}\n"
                "  try   pass MetalParameter('gid', 'uint3', 'thread_position_in_grid')"
            )
        if parameter.attr not in ATTRIBUTES:
            raise KernelError(
                f"Metal kernel {name!r}: parameter {parameter.name!r} has the attribute "
                f"{parameter.attr!r}, which Metal does not have\n  try   use one of "
                + ", ".join(sorted(ATTRIBUTES))
            )


def _check_templates(name: str, inputs: Sequence[str], templates: Mapping[str, str]) -> None:
    unknown = sorted(set(templates) - set(inputs))
    if unknown:
        raise KernelError(
            f"Metal kernel {name!r}: template_dtypes names {', '.join(map(repr, unknown))}, but "
            f"its inputs are {list(inputs)}\n  try   use one of these"
        )
    words = list(templates.values())
    twice = sorted({w for w in words if words.count(w) > 1})
    if twice or not all(words):
        raise KernelError(
            f"Metal kernel {name!r}: template_dtypes has the words {words}\n"
            "  try   use a different word for each input"
        )


def _check_template_words(name: str, names: Sequence[str], words: Iterable[str]) -> None:
    """Raise if a template word is part of a name: it is replaced everywhere in the source."""
    for word in words:
        hit = [n for n in names if word in n]
        if hit:
            raise KernelError(
                f"Metal kernel {name!r}: the template word {word!r} would be replaced inside the "
                f"name {hit[0]!r} too\n  try   use a word that is part of no name, such as 'TYPE'"
            )


def _check_source_uses_names(kernel: Kernel) -> None:
    """Raise for an input or result that the source never names."""
    source = _COMMENT.sub(" ", f"{kernel.helpers}\n{kernel.body}")
    words = set(_IDENTIFIER.findall(source))
    typed = {name for name, word in kernel.templates.items() if word in source}
    for what, names in (("input", kernel.inputs), ("result", kernel.results)):
        for name in names:
            if name not in words and name not in typed:
                raise KernelError(
                    f"Metal kernel {kernel.name!r}: its source never names the {what} {name!r}\n"
                    f"  try   use {name!r} in src, or remove it from {what}_names"
                )


def threads(name: str, what: str, given: Any) -> list[Any]:
    """Return a grid or threadgroup size: three positive integers; symbolic ones are not checked."""
    sizes = list(given) if isinstance(given, list | tuple) else None
    if sizes is None or len(sizes) != 3 or not all(_is_size(s) for s in sizes):
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {given!r}\n  try   pass three integers (x, y, z)"
        )
    if any(isinstance(s, int) and s < 1 for s in sizes):
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {tuple(sizes)}, so no thread would run\n"
            "  try   pass at least 1 for each axis"
        )
    return sizes


def group(name: str, sizes: Sequence[Any]) -> None:
    """Raise for a threadgroup that is too large for every GPU."""
    if all(type(s) is int for s in sizes) and math.prod(sizes) > THREAD_LIMIT:
        raise KernelError(
            f"Metal kernel {name!r}: threads_per_thread_group is {tuple(sizes)}, which is "
            f"{math.prod(sizes)} threads; a threadgroup has {THREAD_LIMIT} at most\n"
            "  try   pass a smaller threadgroup; the number of threadgroups is not limited"
        )


def shapes(name: str, results: Sequence[str], given: Any) -> list[list[Any]]:
    """Return one shape for each result, each of rank 1 or more."""
    listed = isinstance(given, list | tuple) and all(isinstance(s, list | tuple) for s in given)
    if not listed or len(given) != len(results):
        raise KernelError(
            f"Metal kernel {name!r}: result_shapes is {given!r}, but its results are "
            f"{list(results)}\n  try   pass a list of shapes, one for each result"
        )
    found = [list(shape) for shape in given]
    for result, shape in zip(results, found, strict=True):
        if not shape or not all(_is_size(s) for s in shape):
            raise KernelError(
                f"Metal kernel {name!r}: result_shapes has {shape} for {result!r}\n"
                "  try   pass one or more integers: a Metal tensor has rank 1 or more"
            )
    return found


def _is_size(size: Any) -> bool:
    return isinstance(size, int | torch.SymInt) and not isinstance(size, bool)


def dtype(name: str, what: str, given: torch.dtype) -> None:
    """Raise for dtypes that Metal does not have."""
    if narrow(given) not in METAL_TYPES:
        known = ", ".join(str(d).removeprefix("torch.") for d in METAL_TYPES)
        raise KernelError(
            f"Metal kernel {name!r}: {what} is {given}, a type that Metal does not have\n"
            f"  try   use one of {known}, or a 64-bit type, which is narrowed to 32 bits"
        )


def shape(name: str, result: str, declared: Sequence[Any], actual: Sequence[Any]) -> None:
    """Raise unless `result_shapes` agrees with the shape that the reference returns."""
    wrong = len(declared) != len(actual) or any(
        _differ(a, b) for a, b in zip(declared, actual, strict=True)
    )
    if wrong:
        raise KernelError(
            f"Metal kernel {name!r}: result_shapes has {list(declared)} for {result!r}, but "
            f"torch_defn returns {list(actual)}\n"
            "  try   compute result_shapes from the sizes of the inputs"
        )


def results(kernel: Kernel, returned: Sequence[Any], result_shapes: Sequence[Any]) -> None:
    """Raise unless the reference's results have the declared number, shapes and a Metal dtype."""
    name, names = kernel.name, kernel.results
    if len(returned) != len(names) or not all(isinstance(r, torch.Tensor) for r in returned):
        raise KernelError(
            f"Metal kernel {name!r}: torch_defn returned {returned!r}, but its results are "
            f"{list(names)}\n  try   return one tensor for each"
        )
    for result, tensor, declared in zip(names, returned, result_shapes, strict=True):
        dtype(name, f"the result {result!r}", tensor.dtype)
        shape(name, result, declared, tensor.shape)


def _differ(declared: Any, actual: Any) -> bool:
    if isinstance(declared, int) and isinstance(actual, int):
        return declared != actual
    if isinstance(declared, int) or isinstance(actual, int):
        # A constant that fits the example only, where the size is dynamic.
        return not _statically_true(declared == actual)
    check(declared == actual)
    return False


def _statically_true(condition: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import statically_known_true

    return bool(statically_known_true(condition))
