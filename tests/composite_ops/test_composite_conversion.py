"""Each composite op after conversion: one declared graph, and eager's numbers at run time."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, field
from inspect import signature
from typing import Any

import pytest
import torch
from compat.programs import graphs
from numeric_limits import BFLOAT16_STEP
from runtime import descriptor, run
from torch import nn
from torch.export import Dim

from coreai_torch import ExternalizeSpec, TorchConverter, get_decomp_table
from coreai_torch.composite_ops import SDPA, GatedDeltaUpdate, GatherMM, RMSNormImpl, RoPE
from coreai_torch.numerics.tolerance import limits

F32, F16, BF16 = torch.float32, torch.float16, torch.bfloat16
FLOATS = (F32, F16, BF16)
TOLERANCE = limits(BFLOAT16_STEP)  # statistics, softmax and recurrence run in float32
CONTRACT = {
    RMSNormImpl: ("rms_norm", ["axes", "eps"]),
    RoPE: ("rope", ["scale", "base", "dims", "interleaved"]),
    SDPA: ("scaled_dot_product_attention", ["scale", "is_causal", "window_size"]),
    GatherMM: ("gather_mm", ["num_batch_axes"]),
    GatedDeltaUpdate: ("gated_delta_update", ["use_qk_l2_norm"]),
}


def drawn(seed, *shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@dataclass(frozen=True)
class Row:
    """A module, its arguments by name, its dynamic axes, and arguments of other sizes."""

    op: nn.Module
    given: dict[str, torch.Tensor]
    axes: dict[str, dict[int, Any]] = field(default_factory=dict)
    other: dict[str, torch.Tensor] = field(default_factory=dict)


SEQ, KEYS, BATCH = ("seq", 1, 64), ("keys", 2, 64), ("batch", 1, 9)  # name, least, greatest
ROWS: dict[str, Row] = {}


def norm(eps=1e-5, batch=2, scale=None):
    given = {"input": drawn(1, batch, 3, 8) * 2, "scale": drawn(2, 8)}
    return given if scale is None else {**given, "scale": scale}


ROWS |= {
    "rms_norm": Row(RMSNormImpl(), norm(), {"input": {0: BATCH}}, norm(batch=5)),
    "rms_norm_eps": Row(RMSNormImpl(eps=0.5), norm()),
    "rms_norm_heads": Row(RMSNormImpl(), norm(scale=drawn(3, 3, 8))),
}


def rope_arguments(steps, batch=2, **more):
    return {"input": drawn(4, batch, 2, steps, 8), **more}


def infinite(x):
    """Return the tensor with an infinite feature."""
    x[..., 0] = float("inf")
    return x


def positions(steps, start=0):
    return torch.arange(start, start + steps)[None]


def angles(steps, width=4):
    return drawn(5, steps, width)


SEQ_AXES = {"input": {2: SEQ}}
ROWS |= {
    "rope_prefill": Row(RoPE(), rope_arguments(5), SEQ_AXES, rope_arguments(9)),
    "rope_decode": Row(RoPE(), rope_arguments(1, position_ids=positions(1, 17))),
    "rope_positions": Row(
        RoPE(),
        rope_arguments(5, position_ids=positions(5, 3)),
        {**SEQ_AXES, "position_ids": {1: SEQ}},
        rope_arguments(7, position_ids=positions(7, 2)),
    ),
    "rope_infinite": Row(
        RoPE(), {"input": infinite(drawn(4, 2, 2, 5, 8)), "position_ids": positions(5, 3)}
    ),
    "rope_scale_base": Row(RoPE(scale=0.5, base=500.0), rope_arguments(5)),
    "rope_dims": Row(RoPE(dims=4), rope_arguments(5), SEQ_AXES, rope_arguments(8)),
    "rope_dims_of_all": Row(RoPE(dims=64), rope_arguments(3)),
    "rope_interleaved": Row(RoPE(interleaved=True), rope_arguments(5), SEQ_AXES, rope_arguments(6)),
    "rope_interleaved_dims": Row(RoPE(interleaved=True, dims=6), rope_arguments(5)),
    "rope_freqs": Row(RoPE(), rope_arguments(5, freqs=drawn(6, 4).abs())),
    "rope_offset": Row(RoPE(), rope_arguments(1, offset=torch.tensor([3, 11])[:, None])),
    "rope_offset_scalar": Row(RoPE(scale=2.0), rope_arguments(4, offset=torch.tensor(6))),
    "rope_cos_sin": Row(
        RoPE(),
        rope_arguments(5, cos=angles(5).cos(), sin=angles(5).sin()),
        {**SEQ_AXES, "cos": {0: SEQ}, "sin": {0: SEQ}},
        rope_arguments(7, cos=angles(7).cos(), sin=angles(7).sin()),
    ),
    "rope_cos_sin_wide": Row(
        RoPE(), rope_arguments(5, cos=angles(5, 8).cos(), sin=angles(5, 8).sin())
    ),
}


def qkv_inputs(queries, keys, heads=4, groups=2, **more):
    return {
        "query": drawn(7, 1, heads, queries, 8),
        "key": drawn(8, 1, groups, keys, 8),
        "value": drawn(9, 1, groups, keys, 6),
        **more,
    }


KEY_AXES = {"key": {2: KEYS}, "value": {2: KEYS}}
BOTH_AXES = {"query": {2: KEYS}, **KEY_AXES}
SEEN = torch.tensor([True, True, False, True, False])
ROWS |= {
    "sdpa_prefill": Row(SDPA(is_causal=True), qkv_inputs(5, 5), BOTH_AXES, qkv_inputs(8, 8)),
    "sdpa_decode": Row(SDPA(is_causal=True), qkv_inputs(1, 5), KEY_AXES, qkv_inputs(1, 11)),
    "sdpa_static_query": Row(SDPA(), qkv_inputs(3, 5), KEY_AXES, qkv_inputs(3, 9)),
    "sdpa_scale": Row(SDPA(scale=0.25), qkv_inputs(3, 5)),
    "sdpa_one_key_head": Row(SDPA(), qkv_inputs(3, 5, groups=1)),
    "sdpa_equal_heads": Row(SDPA(), qkv_inputs(3, 5, groups=4)),
    "sdpa_window": Row(SDPA(window_size=2), qkv_inputs(5, 5), BOTH_AXES, qkv_inputs(9, 9)),
    "sdpa_window_decode": Row(SDPA(window_size=3), qkv_inputs(1, 6), KEY_AXES, qkv_inputs(1, 9)),
    "sdpa_causal_lower_right": Row(SDPA(is_causal=True), qkv_inputs(2, 5)),
    "sdpa_bool_mask": Row(SDPA(), qkv_inputs(3, 5, attn_mask=SEEN)),
    "sdpa_additive_mask": Row(SDPA(), qkv_inputs(3, 5, attn_mask=drawn(10, 1, 4, 3, 5))),
    "sdpa_sinks": Row(SDPA(), qkv_inputs(3, 5, sinks=drawn(11, 4)), KEY_AXES,
                      qkv_inputs(3, 8, sinks=drawn(11, 4))),
    "sdpa_all_at_once": Row(
        SDPA(scale=0.3, is_causal=True, window_size=3),
        qkv_inputs(4, 5, attn_mask=SEEN, sinks=drawn(11, 4)),
    ),
    "sdpa_blind_query": Row(SDPA(), qkv_inputs(3, 5, attn_mask=torch.zeros(5, dtype=torch.bool))),
}  # fmt: skip


def integers(seed, *shape):
    """Return small integers: float16 products accumulate in float16, where these stay exact."""
    drawn_ = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return drawn_.float()


EXPERTS = torch.tensor([[[2, 0], [1, 3], [0, 0]]])
ROWS |= {
    "gather_mm_plain": Row(GatherMM(), {"lhs": integers(12, 3, 4), "rhs": integers(13, 4, 5)}),
    "gather_mm_rhs": Row(
        GatherMM(),
        {
            "lhs": integers(12, 1, 3, 1, 1, 4),
            "rhs": integers(13, 4, 4, 5),
            "rhs_indices": EXPERTS,
        },
        {"lhs": {1: SEQ}, "rhs_indices": {1: SEQ}},
        {
            "lhs": integers(14, 1, 5, 1, 1, 4),
            "rhs": integers(13, 4, 4, 5),
            "rhs_indices": torch.arange(10).reshape(1, 5, 2) % 4,
        },
    ),
    "gather_mm_lhs": Row(
        GatherMM(),
        {
            "lhs": integers(12, 6, 2, 4),
            "rhs": integers(13, 4, 5),
            "lhs_indices": torch.tensor([5, 0, 3]),
        },
    ),
    "gather_mm_both": Row(
        GatherMM(),
        {
            "lhs": integers(12, 6, 2, 4),
            "rhs": integers(13, 3, 4, 5),
            "lhs_indices": torch.tensor([5, 0]),
            "rhs_indices": torch.tensor([1, 2], dtype=torch.int32),
        },
    ),
    "gather_mm_gate_and_up": Row(
        GatherMM(num_batch_axes=1),
        {
            "lhs": integers(12, 1, 3, 1, 1, 4),
            "rhs": integers(13, 2, 4, 4, 5),
            "rhs_indices": EXPERTS,
        },
    ),
}


def delta_arguments(steps, batch=1):
    heads = (batch, 4, steps)
    return {
        "query": drawn(15, batch, 2, steps, 4),
        "key": drawn(16, batch, 2, steps, 4) / 2,
        "value": drawn(17, *heads, 3),
        "g": -drawn(18, *heads).abs(),
        "beta": drawn(19, *heads).sigmoid(),
        "initial_state": drawn(20, batch, 4, 4, 3),
    }


STEP_AXES = {name: {2: KEYS} for name in ("query", "key", "value", "g", "beta")}
ROWS |= {
    "gated_prefill": Row(GatedDeltaUpdate(), delta_arguments(6), STEP_AXES, delta_arguments(9)),
    "gated_decode": Row(GatedDeltaUpdate(), delta_arguments(1)),
    "gated_no_norm": Row(GatedDeltaUpdate(use_qk_l2_norm=False), delta_arguments(4, batch=2)),
}


class Inside(nn.Module):
    """Ops as submodules, called by keyword; each result passes through another op.

    One program contains all rows of an op, because the export dominates the time.
    """

    def __init__(self, rows):
        super().__init__()
        self.ops = nn.ModuleDict({name: row.op for name, row in rows.items()})
        self.names = {name: list(row.given) for name, row in rows.items()}

    def forward(self, values):
        results = {}
        for name, op in self.ops.items():
            given = dict(zip(self.names[name], values[name], strict=True))
            result = op(**given)
            several = result if isinstance(result, tuple) else (result,)
            results |= {f"{name}_{i}": part * 1 for i, part in enumerate(several)}
        return results


def in_dtype(given, dtype):
    """Copy the tensors: torch.export merges two inputs that are the same tensor."""
    return [t.to(dtype if t.is_floating_point() else t.dtype, copy=True) for t in given.values()]


def axes_of(name, row):
    """Return the dynamic axes of a row; equal labels within a row mean equal sizes."""
    dims = {}
    for axes in row.axes.values():
        for label, least, greatest in axes.values():
            dims[label] = Dim(f"{name}_{label}", min=least, max=greatest)
    return [
        {axis: dims[size[0]] for axis, size in row.axes[given].items()}
        if given in row.axes
        else None
        for given in row.given
    ]


def converted(rows, values, dynamic):
    model = Inside(rows).eval()
    shapes = {"values": {n: axes_of(n, r) for n, r in rows.items()}} if dynamic else None

    def export_fn(module):
        program = torch.export.export(module, (values,), dynamic_shapes=shapes)
        return program.run_decompositions(get_decomp_table())

    specs = [ExternalizeSpec(op, name, attrs) for op, (name, attrs) in CONTRACT.items()]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "externalize_modules: the model holds no")
        converter = TorchConverter().add_pytorch_module(
            model, export_fn, externalize_modules=specs, output_names=list(model(values))
        )
    return model, converter.to_coreai()


def graph_of(name, row, program):
    (graph,) = (g for g in graphs(program).values() if g.name.startswith(f"ops.{name}."))
    assert graphs(program)["main"].callees.count(graph.name) == 1
    return graph


def declared(name, row, program):
    """Assert that the op's graph has the declared names and attributes."""
    graph = graph_of(name, row, program)
    op_name, attrs = CONTRACT[type(row.op)]
    assert graph.composite == op_name
    assert graph.inputs == [n for n in signature(row.op.forward).parameters if n in row.given]
    values = {attr: getattr(row.op, attr) for attr in attrs}
    assert set(graph.attrs) == {"version", *(a for a, v in values.items() if v is not None)}
    for attr, value in values.items():
        kind = {bool: "", int: " : si64", float: " : f32"}.get(type(value))
        assert value is None or graph.attrs[attr].endswith(kind)


def assert_agrees(model, program, values, dtype):
    fed = [tensor for given in values.values() for tensor in given]
    got = run(program, dict(zip(descriptor(program).input_names, fed, strict=True)))
    with torch.no_grad():
        wanted = model(values)
    for name, value in wanted.items():
        bound = TOLERANCE[dtype]
        torch.testing.assert_close(
            got[name], value, rtol=bound, atol=bound, msg=lambda text, at=name: f"{at}: {text}"
        )


@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "dynamic"])
@pytest.mark.parametrize("dtype", FLOATS, ids=lambda d: str(d)[6:])
@pytest.mark.parametrize("op", CONTRACT, ids=lambda op: op.__name__)
def test_program_equals_eager(op, dtype, dynamic):
    rows = {n: r for n, r in ROWS.items() if type(r.op) is op and (r.axes or not dynamic)}
    values = {name: in_dtype(row.given, dtype) for name, row in rows.items()}
    model, program = converted(rows, values, dynamic)
    for name, row in rows.items():
        declared(name, row, program)
    program.optimize()
    assert_agrees(model, program, values, dtype)
    if dynamic:
        assert_agrees(model, program, {n: in_dtype(r.other, dtype) for n, r in rows.items()}, dtype)


def test_every_row_is_run():
    assert {type(row.op) for row in ROWS.values()} == set(CONTRACT)
    assert all(set(row.axes) <= set(row.given) for row in ROWS.values())
    assert all(bool(row.axes) == bool(row.other) for row in ROWS.values())


def test_recurrence_size_does_not_depend_on_steps():
    rows = {f"of_{n}": Row(GatedDeltaUpdate(), delta_arguments(n)) for n in (3, 32)}
    values = {name: in_dtype(row.given, F32) for name, row in rows.items()}
    _, program = converted(rows, values, dynamic=False)
    short, long = (graph_of(name, row, program).body for name, row in rows.items())
    assert short.count("coreai.while") == long.count("coreai.while") == 1
    assert len(short.splitlines()) == len(long.splitlines())


@pytest.mark.parametrize("dtype", [F16, BF16], ids=lambda d: str(d)[6:])
def test_float32_beside_narrow_arguments(dtype):
    """A float32 scale is applied in float32; a float32 state stays float32."""
    rows = {
        "scaled": Row(RMSNormImpl(), norm()),
        "state": Row(GatedDeltaUpdate(), delta_arguments(3)),
    }
    values = {name: in_dtype(row.given, dtype) for name, row in rows.items()}
    values["scaled"][-1] = norm()["scale"]
    values["state"][-1] = delta_arguments(3)["initial_state"]
    model, program = converted(rows, values, dynamic=False)
    # A narrow result may differ by one step; the float32 state accumulates narrow steps.
    assert_agrees(model, program, values, dtype)
