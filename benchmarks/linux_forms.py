"""Measure the forms of the Linux target beside the plain ones; write docs/linux.md.

Both forms of a call are converted and timed in one process, in processor time. The command fails
if a tuned form is less than `LEAST` times as fast, if a form computes wrong numbers, or if an op
with a tuned form is not measured. Arguments select calls by parts of their names.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch._higher_order_ops import scan
from torch._higher_order_ops.map import map as map_
from torch.nn import functional

from benchmarks.ops import child
from coreai_torch import convert
from coreai_torch.lowering.registry import key
from coreai_torch.targets import registry_of
from tests.provenance import current, describe

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "linux.md"
KEPT = Path(__file__).with_name("linux_forms.json")
LEAST = 3.0
LARGEST_ERROR = 1e-4  # of the greatest number of an output
Make = Callable[[], tuple[Any, tuple[Any, ...]]]  # returns a function or a module, and its inputs


def _on(*sizes: int) -> Callable[[Any], Make]:
    """Return a factory of calls with one random tensor."""
    return lambda function: lambda: (function, (torch.randn(*sizes),))


def _padded(mode: str, pad: tuple[int, ...], *sizes: int) -> Make:
    return _on(*sizes)(partial(functional.pad, pad=pad, mode=mode))


def _resized(mode: str, factor: float, *sizes: int) -> Make:
    return _on(*sizes)(partial(functional.interpolate, scale_factor=factor, mode=mode))


def _recurrent(kind: Any, **options: Any) -> Make:
    return lambda: (kind(64, 64, **options).eval(), (torch.randn(4000, 1, 64),))


def _rows(function: Any) -> Make:
    """Return a call that selects 100,000 rows of 4."""
    return lambda: (function, (torch.randn(5000, 4), torch.randint(5000, (100_000,))))


def _symmetric(function: Any, rows: int) -> Make:
    return _on(rows, rows)(lambda x: function(x + x.mT))


def _complex_values(x: torch.Tensor) -> torch.Tensor:
    """Return the sizes of the eigenvalues in order; of the values, the order is not defined."""
    return torch.linalg.eigvals(x).abs().sort().values


def _complex_vectors(x: torch.Tensor) -> torch.Tensor:
    """Return the sizes of the eigenvalues in order, found from values and vectors."""
    values, vectors = torch.linalg.eig(x)
    return (values * vectors).abs().square().sum(0).sqrt().sort().values


def _symmetric_vectors(x: torch.Tensor) -> torch.Tensor:
    """Return the matrix, from its eigenvalues and vectors, whose signs are not defined."""
    values, vectors = torch.linalg.eigh(x)
    return (vectors * values) @ vectors.mT


def _singular_vectors(x: torch.Tensor) -> torch.Tensor:
    left, values, right = torch.linalg.svd(x)
    return (left * values) @ right


def _one_query() -> tuple[Any, tuple[Any, ...]]:
    sizes = (1, 8, 1, 64), (1, 8, 2048, 64), (1, 8, 2048, 64)
    return functional.scaled_dot_product_attention, tuple(torch.randn(size) for size in sizes)


def _running(state: torch.Tensor, row: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    state = 0.9 * state + row
    return state, state.clone()


# name of an op in the registry: calls at sizes of real models
CALLS: dict[str, dict[str, Make]] = {
    "aten::flip": {"flip [3, 512, 512]": _on(3, 512, 512)(lambda x: x.flip(-1))},
    "aten::roll": {
        "roll [1, 224, 224, 96]": _on(1, 224, 224, 96)(lambda x: x.roll((3, 3), (1, 2)))
    },
    "aten::constant_pad_nd": {
        "pad [64, 224, 224] by 3": _padded("constant", (3, 3, 3, 3), 1, 64, 224, 224)
    },
    "aten::reflection_pad1d": {
        "reflect [8, 16000] by 400": _padded("reflect", (400, 400), 8, 16_000)
    },
    "aten::reflection_pad2d": {
        "reflect [64, 128, 128] by 3": _padded("reflect", (3, 3, 3, 3), 1, 64, 128, 128)
    },
    "aten::reflection_pad3d": {
        "reflect [8, 32, 32, 32] by 2": _padded("reflect", (2,) * 6, 1, 8, 32, 32, 32)
    },
    "aten::replication_pad1d": {
        "replicate [8, 16000] by 400": _padded("replicate", (400, 400), 8, 16_000)
    },
    "aten::replication_pad2d": {
        "replicate [64, 128, 128] by 3": _padded("replicate", (3, 3, 3, 3), 1, 64, 128, 128)
    },
    "aten::replication_pad3d": {
        "replicate [8, 32, 32, 32] by 2": _padded("replicate", (2,) * 6, 1, 8, 32, 32, 32)
    },
    "aten::_pad_circular": {
        "circular [64, 128, 128] by 3": _padded("circular", (3, 3, 3, 3), 1, 64, 128, 128)
    },
    "aten::upsample_linear1d.vec": {"linear [64, 4000] x 2": _resized("linear", 2, 1, 64, 4000)},
    "aten::upsample_bilinear2d.vec": {
        "bilinear [64, 112, 112] x 2": _resized("bilinear", 2, 1, 64, 112, 112),
        "bilinear [3, 512, 512] x 1.3": _resized("bilinear", 1.3, 1, 3, 512, 512),
    },
    "aten::upsample_trilinear3d.vec": {
        "trilinear [8, 32, 32, 32] x 2": _resized("trilinear", 2, 1, 8, 32, 32, 32)
    },
    "aten::embedding": {
        "embedding, 100,000 rows of 4": _rows(lambda w, i: functional.embedding(i, w))
    },
    "aten::index_select": {
        "index_select, 100,000 rows of 4": _rows(lambda w, i: w.index_select(0, i))
    },
    "aten::index.Tensor": {"x[i], 100,000 rows of 4": _rows(lambda w, i: w[i])},
    "aten::argmax": {"argmax [64, 32000]": _on(64, 32_000)(lambda x: x.argmax(-1))},
    "aten::argmin": {"argmin [64, 32000]": _on(64, 32_000)(lambda x: x.argmin(-1))},
    "aten::max.dim": {"max with index [64, 32000]": _on(64, 32_000)(lambda x: x.max(1))},
    "aten::min.dim": {"min with index [64, 32000]": _on(64, 32_000)(lambda x: x.min(1))},
    "aten::topk": {"topk, 50 of 32,000": _on(1, 32_000)(lambda x: x.topk(50))},
    "aten::scaled_dot_product_attention": {"one query of 2,048 keys, 8 heads of 64": _one_query},
    "aten::_linalg_eigh": {
        "eigvalsh [64, 64]": _symmetric(torch.linalg.eigvalsh, 64),
        "eigh [128, 128]": _symmetric(_symmetric_vectors, 128),
        "eigvalsh [256, 256]": _symmetric(torch.linalg.eigvalsh, 256),
    },
    "aten::_linalg_svd": {
        "svdvals [64, 64]": _on(64, 64)(torch.linalg.svdvals),
        "svd [128, 128]": _on(128, 128)(_singular_vectors),
        "svdvals [256, 256]": _on(256, 256)(torch.linalg.svdvals),
    },
    "aten::linalg_eigvals": {
        "eigvals [16, 16]": _on(16, 16)(_complex_values),
        "eigvals [64, 64]": _on(64, 64)(_complex_values),
    },
    "aten::linalg_eig": {
        "eig [32, 32]": _on(32, 32)(_complex_vectors),
        "eig [64, 64]": _on(64, 64)(_complex_vectors),
    },
    "aten::lstm.input": {"lstm, 4,000 steps of 64": _recurrent(torch.nn.LSTM)},
    "aten::gru.input": {"gru, 4,000 steps of 64": _recurrent(torch.nn.GRU)},
    "aten::rnn_tanh.input": {"rnn_tanh, 4,000 steps of 64": _recurrent(torch.nn.RNN)},
    "aten::rnn_relu.input": {
        "rnn_relu, 4,000 steps of 64": _recurrent(torch.nn.RNN, nonlinearity="relu")
    },
    "higher_order::scan": {
        "scan, 4,000 rows of 256": _on(4000, 256)(lambda x: scan(_running, torch.zeros(256), x))
    },
    "higher_order::map_impl": {"map, 4,000 rows of 256": _on(4000, 256)(partial(map_, torch.sin))},
}


def unmeasured() -> list[str]:
    """Return the ops with a tuned form that no call measures.

    The two overloads of a resize share their form: `vec` stands for both. So does `linalg_eigvals`
    for the internal op with the same form.
    """
    names = {key(entry.target) for entry in registry_of("linux").own()} - {"aten::_linalg_eigvals"}
    return sorted(name for name in names if name not in CALLS and f"{name}.vec" not in CALLS)


def measure(make: Make) -> dict[str, Any]:
    """Return the times of both forms in milliseconds and their errors."""
    torch.manual_seed(0)
    torch.set_num_threads(1)
    function, args = make()
    module = function if isinstance(function, torch.nn.Module) else child.Call(function)
    with torch.no_grad():
        wanted = torch.utils._pytree.tree_leaves(module(*args))
    judge = partial(child.error, wanted=wanted)
    figures = {}
    for name, target in (("plain", None), ("linux", "linux")):
        program = convert(module, args, target=target, verify=False)
        timed = asyncio.run(child.timed(program, args, judge))
        figures[name] = {"ms": 1000 * timed["run"], "error": timed["error"]}
    return figures


def problems(name: str, figures: dict[str, Any]) -> list[str]:
    """Return what is wrong with the figures of a call."""
    found = [
        f"{name}: the {form} form is off by {figures[form]['error']:.1e}"
        for form in ("plain", "linux")
        if not figures[form]["error"] <= LARGEST_ERROR
    ]
    if _ratio(figures) < LEAST:
        found.append(f"{name}: only {_ratio(figures):.1f} times as fast as the plain form")
    return found


def _ratio(figures: dict[str, Any]) -> float:
    return float(figures["plain"]["ms"] / figures["linux"]["ms"])


def _page(measured: dict[str, Any]) -> str:
    rows = [
        f"| `{op}` | {name} | {m['plain']['ms']:.1f} | {m['linux']['ms']:.1f} | {_ratio(m):.1f} |"
        for op, calls in CALLS.items()
        for name in calls
        if (m := measured.get(name))
    ]
    when = sorted({describe(m["measured"]) for m in measured.values()})
    return "\n".join(
        [
            "# Forms for Linux",
            "",
            "The converter emits forms that devices run well. The Linux runtime of coreai-core is "
            "an interpreter, and runs some of them slowly. If you serve a model on Linux or "
            'evaluate it there on a data set, convert it with `target="linux"` '
            "(`--target linux`): the ops below then have forms that this runtime runs at least "
            f"{LEAST:.0f} times as fast. They gather, write slices and run loops, which devices "
            "run badly; do not ship such a program to a device.",
            "",
            "`make bench-forms` measures both forms of each op in one run, in processor time on "
            "one thread.",
            "",
            "| op | call | plain form, ms | Linux form, ms | times as fast |",
            "|---|---|---|---|---|",
            *rows,
            "",
            *when,
            "",
        ]
    )


def main() -> int:
    parts = sys.argv[1:]
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    names = [name for calls in CALLS.values() for name in calls]
    known = {name: figures for name, figures in known.items() if name in names}
    found = [f"{op} has a tuned form that is not measured" for op in unmeasured()]
    for name in names:
        if not parts or any(part in name for part in parts):
            with multiprocessing.get_context("fork").Pool(1) as pool:
                known[name] = pool.apply(_measured, (name,)) | {"measured": current()}
            found += problems(name, known[name])
            print(name, f"{_ratio(known[name]):.1f}", known[name], flush=True)
            KEPT.write_text(json.dumps(known, indent=1) + "\n")
    PAGE.write_text(_page(known))
    print("\n".join(found))
    return 1 if found else 0


def _measured(name: str) -> dict[str, Any]:
    return measure(next(calls[name] for calls in CALLS.values() if name in calls))


if __name__ == "__main__":
    sys.exit(main())
