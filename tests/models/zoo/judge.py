"""Export, convert, optimize, save and run one model, and compare it with eager torch."""

from __future__ import annotations

import asyncio
import collections
import resource
import tempfile
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass
class Verdict:
    """The result for one model; `failure` is empty if it agrees with torch."""

    name: str
    failure: str = ""
    trace: str = ""
    error: float = float("nan")  # the largest, relative to the largest value of the output
    parameters: int = 0
    nodes: int = 0
    operations: int = 0
    cpu: float = 0.0  # CPU seconds, all stages
    seconds: dict[str, float] = field(default_factory=dict)  # wall time by stage
    composites: dict[str, int] = field(default_factory=dict)
    outputs: list[str] = field(default_factory=list)


# Tolerance relative to the largest output. Every op rounds to 11 or 8 bits, and the program rounds
# at other points than eager torch; this is what some tens of roundings add up to.
HALF = {"float16": 5e-3, "bfloat16": 8e-2}


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def judge(name: str, dtype: str = "") -> Verdict:
    """Return the verdict on a model; an exception becomes its `failure`."""
    import torch

    import zoo

    row = zoo.ROWS.get(name) or zoo.PUBLISHED_SIZES[name]
    verdict = Verdict(name)
    torch.set_num_threads(1)
    try:
        _judge(row, getattr(torch, dtype or row.dtype), verdict)
    except Exception as error:
        verdict.failure = f"{type(error).__name__}: {error}"
        verdict.trace = traceback.format_exc()
    verdict.cpu = time.process_time()
    return verdict


SECONDS, GIGABYTES = 180, 8  # limits of a model at its published sizes, in processor seconds


def judge_within_limits(name: str, dtype: str = "") -> Verdict:
    """Return the verdict on a model; the system stops this process at the limits."""
    resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_DATA, (GIGABYTES << 30, GIGABYTES << 30))
    return judge(name, dtype)


class _Stages:
    def __init__(self, verdict: Verdict) -> None:
        self._seconds = verdict.seconds
        self._since = time.perf_counter()

    def done(self, stage: str) -> None:
        now = time.perf_counter()
        self._seconds[stage] = now - self._since
        self._since = now


def _judge(row: Any, dtype: Any, verdict: Verdict) -> None:
    import torch

    stages = _Stages(verdict)
    torch.manual_seed(0)
    model = row.build().eval()
    _add_noise(model, row.gain)
    model = model.to(dtype)
    inputs = _make_inputs(row.inputs, dtype)
    verdict.parameters = sum(p.numel() for p in model.parameters())
    stages.done("build")
    with torch.no_grad():
        wanted = [_results(model, inputs, row.flags)]
    stages.done("eager")
    program = _converted(row, model, inputs, verdict, stages)
    _count(program, verdict)
    calls = [inputs]
    if row.dynamic is not None:
        torch.manual_seed(1)
        calls.append({**inputs, **_make_inputs(row.dynamic.other, dtype)})
        with torch.no_grad():
            wanted.append(_results(model, calls[1], row.flags))
    stages = _Stages(verdict)
    got = _run(program, calls, dtype)
    stages.done("run")
    for one, other in zip(got, wanted, strict=True):
        verdict.outputs = list(one)
        if row.ranked_by is not None:
            name = next(iter(one))
            one[name] = _in_order_of(one[name], torch.as_tensor(other[0]), row.ranked_by)
        _compare(one, other, HALF.get(dtype_name(dtype), row.tolerance), verdict)


def _converted(
    row: Any, model: Any, inputs: dict[str, Any], verdict: Verdict, stages: _Stages
) -> Any:
    """Return the optimized program, or the asset that the library of the model exported."""
    from coreai.authoring import AIModelAsset

    from coreai_torch import TorchConverter

    if row.asset is not None:
        return AIModelAsset.load(row.asset(model))
    exported = _exported(row, model, inputs)
    verdict.nodes = len(exported.graph.nodes)
    stages.done("export")
    program = TorchConverter().add_exported_program(exported).to_coreai()
    stages.done("convert")
    program.optimize()
    stages.done("optimize")
    return program


def _add_noise(model: Any, gain: float) -> None:
    """Add noise to constant parameters: scales of one and biases of zero hide errors.

    Heads of zeros would also give equal scores, whose order is undefined.
    """
    import torch

    with torch.no_grad():
        for tensor in model.parameters():
            if tensor.dim() == 4:
                tensor.mul_(gain)
            if tensor.numel() > 1 and (tensor == tensor.flatten()[0]).all():
                tensor.add_(torch.randn_like(tensor), alpha=0.1)
        for name, tensor in model.named_buffers():
            if name.endswith("running_mean"):
                tensor.add_(torch.randn_like(tensor), alpha=0.1)
            elif name.endswith("running_var"):
                tensor.mul_(torch.rand_like(tensor) + 0.5)


def _make_inputs(inputs: dict[str, Any], dtype: Any) -> dict[str, Any]:
    made = {name: tensor.make() for name, tensor in inputs.items()}
    return {n: t.to(dtype) if t.is_floating_point() else t for n, t in made.items()}


def _results(model: Any, inputs: dict[str, Any], flags: dict[str, Any]) -> list[Any]:
    import torch
    from torch.utils import _pytree as pytree

    cloned = {n: t.clone() for n, t in inputs.items()}
    leaves = pytree.tree_leaves(model(**cloned, **flags))
    return [x for x in leaves if isinstance(x, torch.Tensor | int | float)]


def _exported(row: Any, model: Any, inputs: dict[str, Any]) -> Any:
    """Export and decompose as `coreai_torch.convert` does."""
    from torch.export import Dim

    from coreai_torch import get_decomp_table
    from coreai_torch.capture.exporting import decompose, export

    shapes = None
    if row.dynamic is not None:
        shapes = {n: dict.fromkeys(row.dynamic.axes.get(n, ()), Dim.DYNAMIC) for n in inputs}
        shapes.update(dict.fromkeys(row.flags))
    program = export(model, (), {**inputs, **row.flags}, shapes)
    return decompose(program, get_decomp_table())


def _count(program: Any, verdict: Verdict) -> None:
    """Count the operations of the optimized program, and its composites by name."""
    from coreai_torch.asset import reading
    from coreai_torch.asset.summary import ops_of

    functions = reading.read(program, largest=0).functions
    ops = [op for function in functions.values() for op in ops_of(function.body)]
    verdict.operations = sum(not op.name.startswith(_NOT_COUNTED) for op in ops)
    called = [functions[op.attributes["callee"]] for op in ops if op.name == "coreai.invoke"]
    verdict.composites = dict(collections.Counter(f.composite for f in called if f.composite))


_NOT_COUNTED = ("coreai.graph", "coreai.constant", "coreai.output")


def _run(program: Any, calls: list[dict[str, Any]], dtype: Any) -> list[dict[str, Any]]:
    """Run on the runtime; run float16 with torch, since the runtime on Linux sums in float16."""
    import torch

    from coreai_torch import to_torch

    if dtype != torch.float16:
        return asyncio.run(_called(program, calls))
    module = to_torch(program)
    names = module.function("main").inputs
    return [module({n: inputs[n] for n in names}) for inputs in calls]


async def _called(program: Any, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
    import runtime

    results = []
    with tempfile.TemporaryDirectory() as folder:
        saved = hasattr(program, "executable")
        asset = program if saved else program.save_asset(Path(folder) / "model.aimodel")
        async with asset.executable() as model:
            function = model.load_function("main")
            names = function.desc.input_names
            for inputs in calls:
                assert set(names) <= set(inputs), f"inputs are {names}, not {list(inputs)}"
                result = await function({n: runtime.ndarray(inputs[n]) for n in names})
                order = function.desc.output_names
                results.append({n: runtime.tensor(result[n]) for n in order})
    return results


def _compare(got: dict[str, Any], wanted: list[Any], tolerance: float, verdict: Verdict) -> None:
    import torch

    assert len(got) == len(wanted), f"{len(got)} outputs for {len(wanted)}: {list(got)}"
    worst = 0.0
    for (name, value), other in zip(got.items(), wanted, strict=True):
        want = torch.as_tensor(other)
        assert value.shape == want.shape, f"{name} is {[*value.shape]}, not {[*want.shape]}"
        if not want.is_floating_point():
            assert torch.equal(value.long(), want.long()), f"{name}: integers differ"
            continue
        worst = max(worst, _distance(name, value.double(), want.double()))
    assert any(torch.as_tensor(w).any() for w in wanted), (
        "all outputs are zero: raise the row's gain"
    )
    verdict.error = max(worst, verdict.error) if verdict.error == verdict.error else worst
    assert worst <= tolerance, f"differs by {worst:.2g} of the largest value"


def _in_order_of(rows: Any, wanted: Any, scores: int) -> Any:
    """Return the rows in the order of the wanted rows next to them; their scores must be in order.

    Rows with equal scores have no defined order: at 640x640, the initial weights of a detector
    give the same score to boxes in different positions.
    """
    import torch

    flat, order = rows.flatten(0, -2), wanted.flatten(0, -2)
    error = _distance("scores", flat[:, scores].double(), order[:, scores].double())
    assert error <= 1e-4, f"scores differ by {error:.2g} of the largest"
    nearest = torch.cdist(order.double(), flat.double()).argmin(dim=1)
    assert nearest.unique().numel() == len(flat), "two wanted rows are next to the same row"
    return flat[nearest].reshape(rows.shape)


def _distance(name: str, value: Any, want: Any) -> float:
    """Return the largest difference relative to the largest wanted value.

    Infinities and NaN must be at the same positions.
    """
    import torch

    finite = want.isfinite()
    assert torch.equal(value.isfinite(), finite), f"{name}: other elements are finite"
    same = torch.where(finite, 0.0, want)
    assert torch.equal(torch.where(finite, 0.0, value).nan_to_num(9.0), same.nan_to_num(9.0)), (
        f"{name}: infinities differ"
    )
    value, want = value[finite], want[finite]
    if not want.numel():
        return 0.0
    scale = want.abs().max().item()
    return (value - want).abs().max().item() / (scale or 1.0)
