"""Recognition of products with the weights of selected experts."""

from __future__ import annotations

import pytest
import torch
from compat.programs import composites, externalized
from lazy_import import lazy_import
from passes.recognized import Plain, Several, assert_runs_as, check_recognition, converted, why
from torch import nn

from coreai_torch import ExternalizeSpec
from coreai_torch.composite_ops import GatherMM

moe = lazy_import("transformers.integrations.moe")  # registers its product of groups

EXPERTS, WIDTH, HIDDEN = 4, 8, 6
SLOW = pytest.mark.slow
FLOATS = [torch.float32, pytest.param(torch.float16, marks=SLOW), torch.bfloat16]


def drawn(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def _columns(m, x, chosen):
    """transformers' batched experts: weights `[experts, out, in]`."""
    return torch.bmm(m.out_in[chosen], x.unsqueeze(-1)).squeeze(-1)


def _rows(m, x, chosen):
    return torch.bmm(x.unsqueeze(1), m.in_out[chosen]).squeeze(1)


def _transposed(m, x, chosen):
    return (x.unsqueeze(1) @ m.out_in[chosen].mT).squeeze(1)


def _selected(m, x, chosen):
    return (x.unsqueeze(1) @ m.in_out.index_select(0, chosen)).squeeze(1)


def _several_each(m, x, chosen):
    """Two experts for each row: indices of two axes."""
    pairs = torch.stack((chosen, (chosen + 1) % EXPERTS), 1)
    return x[:, None, None] @ m.in_out[pairs]


def _grouped(m, x, chosen):
    """transformers' grouped experts with sorted rows."""
    ordered, order = chosen.sort()
    ends = (ordered[:, None] <= torch.arange(EXPERTS)).sum(0).int()
    return torch.ops.transformers.grouped_mm_fallback(x[order], m.out_in.mT, ends)


def _grouped_short(m, x, chosen):
    """The last rows belong to no group."""
    ends = torch.arange(EXPERTS, dtype=torch.int32) + chosen[0].int() * 0
    return torch.ops.transformers.grouped_mm_fallback(x, m.in_out, ends)


FORMS = {
    "columns": _columns,
    "rows": _rows,
    "transposed": _transposed,
    "selected": _selected,
    "several_each": _several_each,
    "grouped": _grouped,
    "grouped_short": _grouped_short,
}


def _model(function):
    weights = {"in_out": drawn(EXPERTS, WIDTH, HIDDEN), "out_in": drawn(EXPERTS, HIDDEN, WIDTH)}
    return Plain(function, **weights)


CHOSEN = torch.tensor([2, 0, 3, 3, 1])


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
def test_every_form_is_recognized_as_gather(dtype):
    model = Several({name: _model(function) for name, function in FORMS.items()}).to(dtype)
    report = check_recognition(model, drawn(5, WIDTH, dtype=dtype), CHOSEN)
    assert not report.missed
    assert [(row.composite, row.path) for row in report.found] == [
        ("gather_mm", f"models.{name}") for name in FORMS
    ]


def test_gather_with_dynamic_rows_runs():
    chosen = ("columns", "transposed", "several_each", "grouped")
    model = Several({name: _model(FORMS[name]) for name in chosen})
    rows = torch.export.Dim("rows", min=2, max=64)
    x = drawn(5, WIDTH)
    program, report = converted(model, x, CHOSEN, dynamic_shapes=(({0: rows}, {0: rows}),))
    assert report.counts == {"gather_mm": 4}
    assert_runs_as(
        program, model, (x, CHOSEN), (drawn(7, WIDTH), torch.tensor([0, 3, 3, 1, 2, 2, 0]))
    )


def test_grouped_products_in_bfloat16_run():
    """The export contains products with every expert, and selects one of them."""

    def grouped(m, x, chosen):
        ordered, order = chosen.sort()
        ends = (ordered[:, None] <= torch.arange(EXPERTS)).sum(0).int()
        return torch._grouped_mm(x[order], m.weight, ends)

    weight = drawn(EXPERTS, 16, 8, dtype=torch.bfloat16)
    model, x = Plain(grouped, weight=weight), drawn(5, 16, dtype=torch.bfloat16)
    program, report = converted(model, x, CHOSEN)
    assert report.counts == {"gather_mm": 1}
    assert_runs_as(program, model, (x, CHOSEN))


class _Module(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(drawn(EXPERTS, WIDTH, HIDDEN))
        self.product = GatherMM()

    def forward(self, x, chosen):
        return self.product(x.unsqueeze(1), self.weight, rhs_indices=chosen)


def test_composite_equals_the_module():
    x = drawn(5, WIDTH)
    theirs, _ = converted(_model(_rows), x, CHOSEN)
    spec = ExternalizeSpec(GatherMM, "gather_mm", ["num_batch_axes", "version"])
    ours = externalized(_Module(), x, CHOSEN, modules=[spec])
    (mine,), (wanted,) = composites(theirs, "gather_mm"), composites(ours, "gather_mm")
    assert (mine.inputs, mine.outputs, mine.attrs) == (wanted.inputs, wanted.outputs, wanted.attrs)


def test_selected_operand_must_be_a_weight():
    model = Plain(lambda m, x, at: x[at] @ x)
    report = check_recognition(model, drawn(5, 3, 3), CHOSEN)
    assert report.counts == {}
    assert why(report, "gather_mm") == "%args_0, which is indexed, is not a weight"


def test_weights_with_two_uses_are_reported():
    def twice(m, x, chosen):
        picked = m.in_out[chosen]
        return x.unsqueeze(1) @ picked, picked.sum()

    report = check_recognition(_model(twice), drawn(5, WIDTH), CHOSEN)
    assert report.counts == {}
    assert "inside of it, is read by %sum_1" in why(report, "gather_mm")
