"""The second size of a case is larger where the export allows it."""

from __future__ import annotations

import case_runner
import pytest
import second_size
import torch

from coreai_torch.lowering.cases import case, f32, i64

aten = torch.ops.aten
ROWS = {
    "every size": (aten.add.Tensor, case(f32(2, 3), f32(2, 3)), [(3, 4), (3, 4)]),
    "as the guards allow": (aten.pixel_shuffle.default, case(f32(2, 4, 3, 3), 2), [(3, 4, 4, 4)]),
    "fixed sizes": (aten.add.Tensor, case(f32(2, 3), f32(3, fixed=True)), [(3, 3), (3,)]),
    "rejected by torch": (aten.put.default, case(f32(5), i64(2, 2, low=0, high=4), f32(4)), None),
    "one size only": (aten.exp.default, case(f32(4), one_size="a reason"), None),
}


@pytest.mark.parametrize("name", ROWS)
def test_second_size(name):
    target, one, wanted = ROWS[name]
    model = case_runner.CaseModel(target, one)
    exported, _ = case_runner.convert(model, dynamic=True)
    found = [tuple(feed.shape) for feed in second_size.feeds(exported, model)]
    first = [tuple(feed.shape) for feed in model.feeds]
    assert found == (first if wanted is None else wanted)


def test_given_values_keep_their_order():
    model = case_runner.CaseModel(aten.exp.default, case(f32(3, values=(1.0, 2.0, 5.0))))
    exported, _ = case_runner.convert(model, dynamic=True)
    (feed,) = second_size.feeds(exported, model)
    assert feed.tolist() == [1.0, 2.0, 5.0, 5.0]
