"""The programs to sabotage: the cases of every op in small models, and whole models of the zoo."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import nn

TESTS = Path(__file__).parents[1]
for _folder in (TESTS, TESTS / "ops", TESTS / "models"):
    sys.path.insert(0, str(_folder))

import case_runner  # noqa: E402  found by the lines above

from coreai_torch import TorchConverter  # noqa: E402
from coreai_torch.capture.prepare import Captured, prepare  # noqa: E402
from coreai_torch.converter import capture_rules  # noqa: E402
from coreai_torch.lowering.registry import BUILTIN, key  # noqa: E402

from .sabotage import registry_with  # noqa: E402

SEEDS = 2  # random inputs besides the given ones that decide whether a mutant matters

# Whole models, of different depth and kind; all need torch and transformers only.
MODELS = ("lstm", "gpt2", "qwen2", "mixtral", "mamba", "distilbert", "t5", "vit", "convnextv2")
MODELS += ("segformer", "wav2vec2", "patchtst")
SITES = 16  # nodes to sabotage in a whole model, at even distances in its order
SLICES = 4  # units of a whole model, for parallel runs


@dataclass(frozen=True)
class Site:
    """An op to sabotage: everywhere in the program, or at one node."""

    op: str
    node: str = ""
    depth: float = 0.0  # its place in the order of the graph, from 0 to 1


@dataclass(frozen=True)
class Unit:
    """One program and the places to sabotage in it; a worker runs one at a time."""

    name: str
    op: str = ""  # for a case
    case: int = 0
    context: str = ""
    model: str = ""  # for a whole model
    slice: int = 0


def units() -> list[Unit]:
    """Return all units, the whole models first because they take longest."""
    return [*_models(), *_cases()]


def _models() -> Iterator[Unit]:
    for model in MODELS:
        for number in range(SLICES):
            yield Unit(f"model {model}/{number}", model=model, slice=number)


def _cases() -> Iterator[Unit]:
    import coreai_torch.ops  # noqa: F401  # registers the lowerings

    for number, entry in enumerate(BUILTIN):
        usable = [i for i, case in enumerate(entry.cases) if not case.void]
        if not usable:
            continue
        op = key(entry.target)
        first = next((i for i in usable if _has(entry.cases[i], torch.float32)), usable[0])
        yield Unit(f"{op}/{first} alone", op, first, "alone")
        seen = {first}
        context = "within" if number % 2 else "beside"
        yield Unit(f"{op}/{first} {context}", op, first, context)
        for dtype in (torch.float16, torch.bfloat16):
            half = next((i for i in usable if _has(entry.cases[i], dtype)), first)
            if half not in seen:
                seen.add(half)
                yield Unit(f"{op}/{half} alone", op, half, "alone")


def _has(case: Any, dtype: torch.dtype) -> bool:
    arguments = [*case.args, *case.kwargs.values()]
    listed = [a for one in arguments for a in (one if isinstance(one, list) else [one])]
    return any(getattr(a, "dtype", None) == dtype and hasattr(a, "make") for a in listed)


class InContext(nn.Module):
    """A case alone, or with ops behind it, or in one output beside much larger values."""

    def __init__(self, case: nn.Module, context: str) -> None:
        super().__init__()
        self.case, self.context = case, context

    def forward(self, *inputs: torch.Tensor) -> Any:
        results = case_runner.listed(self.case(*inputs))
        first = results[0]
        if self.context == "alone" or not _is_real_float(first):
            return results
        if self.context == "within":
            return [first * 0.5 + torch.sin(first), *results[1:]]
        large = next((x for x in inputs if x.dtype == first.dtype and x.numel()), None)
        if large is None:
            return results
        return [torch.cat([first.flatten(), large.flatten() * 1e4]), *results[1:]]


def _is_real_float(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.dtype in (
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.float64,  # the reference
    )


@dataclass
class Loaded:
    """A captured program, its reference in float64, and the inputs that decide."""

    model: nn.Module
    make_wide: Callable[[], nn.Module]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    others: list[tuple[tuple[Any, ...], dict[str, Any]]]
    captured: Captured
    sites: list[Site]

    @property
    def inputs(self) -> list[tuple[tuple[Any, ...], dict[str, Any]]]:
        """The given inputs and the others."""
        return [(self.args, self.kwargs), *self.others]

    @cached_property
    def wide_model(self) -> nn.Module | None:
        """The model in float64, or None if it does not run so."""
        try:
            return self.make_wide()
        except Exception:
            return None

    def eager(self, which: int) -> list[torch.Tensor]:
        """Return torch's outputs in the program's dtype."""
        args, kwargs = self.inputs[which]
        return _outputs(self.model, args, kwargs)

    def wide(self, which: int) -> list[torch.Tensor] | None:
        """Return torch's outputs in float64, or None if it cannot compute them."""
        args, kwargs = self.inputs[which]
        args = tuple(_double(a) for a in args)
        kwargs = {name: _double(a) for name, a in kwargs.items()}
        try:
            return _outputs(self.wide_model, args, kwargs) if self.wide_model else None
        except Exception:
            return None


def _double(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_complex():
        return value.to(torch.complex128)
    return value.double() if value.is_floating_point() else value


def _outputs(model: nn.Module, args: Sequence[Any], kwargs: dict[str, Any]) -> list[torch.Tensor]:
    copies = [a.clone() if isinstance(a, torch.Tensor) else a for a in args]
    with torch.no_grad():
        result = model(*copies, **kwargs)
    leaves = torch.utils._pytree.tree_leaves(result)
    return [torch.as_tensor(x) for x in leaves if isinstance(x, torch.Tensor | bool | int | float)]


def load(unit: Unit) -> Loaded:
    """Build, export and plan the program of a unit."""
    return _load_model(unit) if unit.model else _load_case(unit)


def _load_case(unit: Unit) -> Loaded:
    import coreai_torch.ops  # noqa: F401  # registers the lowerings

    entry = BUILTIN.get(unit.op)
    assert entry is not None
    case = entry.cases[unit.case]

    def make() -> tuple[InContext, Any]:
        one = case_runner.CaseModel(entry.target, case)
        return InContext(one, unit.context), one

    model, one = make()
    others = [
        (tuple(given.make(100 * seed + i) for i, given in enumerate(one.given)), {})
        for seed in range(1, SEEDS + 1)
    ]
    registry, _ = registry_with(unit.op, None)
    converter = TorchConverter()
    converter._registry = registry
    captured = prepare(model, tuple(one.feeds), rules=capture_rules(converter))
    found = [n for n in captured.program.graph.nodes if n.op == "call_function"]
    here = [n for n in found if key(n.target) == unit.op]
    sites = [Site(unit.op)] if here else []
    args = tuple(one.feeds)
    return Loaded(model, lambda: make()[0].double(), args, {}, others, captured, sites)


def _load_model(unit: Unit) -> Loaded:
    import copy

    import zoo
    from zoo import judge

    row = zoo.ROWS[unit.model]
    torch.manual_seed(0)
    model = row.build().eval()
    judge._add_noise(model, row.gain)
    inputs = []
    for seed in range(SEEDS + 1):
        torch.manual_seed(seed)
        inputs.append(((), {**judge._make_inputs(row.inputs, torch.float32), **row.flags}))
    captured = prepare(model, (), inputs[0][1], rules=capture_rules(TorchConverter()))
    return Loaded(
        model,
        lambda: copy.deepcopy(model).double(),
        (),
        inputs[0][1],
        inputs[1:],
        captured,
        _sites(captured, unit.slice),
    )


def _has_tensors(node: Any) -> bool:
    value = node.meta.get("val")
    first = value[0] if isinstance(value, list | tuple) and value else value
    return node.op == "call_function" and isinstance(first, torch.Tensor)


def _sites(captured: Captured, number: int) -> list[Site]:
    """Return every fourth of the sites of a whole model, beginning with `number`."""
    inputs = {i.node for i in captured.plan.inputs}
    at_run_time: set[Any] = set(inputs)  # other nodes are folded
    nodes = []
    for n in captured.program.graph.nodes:
        if at_run_time.intersection(n.all_input_nodes):
            at_run_time.add(n)
            if BUILTIN.get(key(n.target)) is not None and _has_tensors(n):
                nodes.append(n)
    count = min(SITES, len(nodes))
    chosen = [(i + 0.5) / count for i in range(count)]
    picked = [(share, nodes[int(share * len(nodes))]) for share in chosen]
    sites = [Site(key(n.target), n.name, round(share, 3)) for share, n in picked]
    return sites[number::SLICES]
