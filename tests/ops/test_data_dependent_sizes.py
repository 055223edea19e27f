"""Data-dependent sizes may be zero: the result equals torch, and the process does not crash."""

from __future__ import annotations

import pytest
import runtime
import torch
from torch.nn import functional

from coreai_torch import TorchConverter, get_decomp_table

pytestmark = pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning")
torch.manual_seed(0)
WEIGHT = torch.randn(4, 3)
KERNEL = torch.randn(5, 2, 3, 3)
X = torch.randn(6, 4)
MASKS = {"some": torch.tensor([1, 0, 1, 1, 0, 1]).bool(), "none": torch.zeros(6).bool()}


def _written(places, rows):
    out = torch.zeros(6, 4)
    out[places] = rows * 2
    return out


# Functions of the selected rows `r` (possibly none) and of their indices.
OPS = {
    "pick": lambda r, i: r,
    "scalar": lambda r, i: r + 1,
    "vector": lambda r, i: r * WEIGHT[:, 0],
    "one row": lambda r, i: r * WEIGHT[None, :, 0],
    "outer": lambda r, i: r[:, None] + WEIGHT.t(),
    "pairs": lambda r, i: r[:, None] - r[None],
    "relu": lambda r, i: r.relu(),
    "clamp": lambda r, i: r.clamp(0, 1),
    "where": lambda r, i: torch.where(r > 0, r, 0.0),
    "power": lambda r, i: r**2 + r.abs() ** 3.5,
    "to integers": lambda r, i: r.to(torch.int32) + i[:, None],
    "to booleans": lambda r, i: r.bool() & (r < 1),
    "linear": lambda r, i: functional.linear(r, WEIGHT.t(), WEIGHT[0]),
    "convolution": lambda r, i: functional.conv2d(
        r.reshape(-1, 2, 1, 2).expand(-1, 2, 3, 2), KERNEL, padding=1
    ),
    "layer norm": lambda r, i: functional.layer_norm(r, (4,), WEIGHT[:, 0], WEIGHT[:, 1]),
    "windows": lambda r, i: r.unfold(1, 3, 1),
    "patches": lambda r, i: r.reshape(-1, 2, 2).unfold(1, 2, 2).unfold(2, 1, 1),
    "softmax": lambda r, i: r.softmax(-1),
    "argmax": lambda r, i: r.argmax(1),
    "topk": lambda r, i: r.topk(2, 1)[0],
    "pad": lambda r, i: functional.pad(r, (0, 2)),
    "reshape": lambda r, i: r.reshape(-1, 2, 2),
    "sum": lambda r, i: r.sum(0),
    "running sum of exponentials": lambda r, i: r.logcumsumexp(0),
    "sum of all": lambda r, i: r.sum() + i.sum(),
    "product": lambda r, i: r.prod(0),
    "mean": lambda r, i: r.mean(0),
    "variance": lambda r, i: r.var(0),
    "length": lambda r, i: r.norm(dim=0),
    "any": lambda r, i: (r > 0).any(0),
    "all": lambda r, i: (r > 0).all(),
    "counts": lambda r, i: i.bincount(),
    "at least three counts": lambda r, i: i.bincount(minlength=3),
    "weighted counts": lambda r, i: i.bincount(r[:, 0]),
    "running sum": lambda r, i: r.cumsum(0),
    "running sums of rows": lambda r, i: r.cumsum(1),
    "sorted": lambda r, i: r.sort(0)[0],
    "sorted columns": lambda r, i: r.sort(1)[0],
    "middle": lambda r, i: r.median(1)[0],
    "unique": lambda r, i: torch.unique(i // 2),
    "unique floats": lambda r, i: torch.unique(r[:, 0], return_counts=True)[1],
    "consecutive": lambda r, i: torch.unique_consecutive(i // 2, return_inverse=True)[1],
    "unique rows": lambda r, i: torch.unique(r.round(), dim=0),
    "places of unique rows": lambda r, i: torch.unique(r > 0, dim=0, return_inverse=True)[1],
    "consecutive rows": lambda r, i: torch.unique_consecutive(r > 0, dim=0),
    "narrow rows": lambda r, i: torch.cat([X[i], X[i + 0]], 1),
    "assigned elements": lambda r, i: X[:, 0].index_put((i,), r[:, 0]),
    "rounded": lambda r, i: r.floor() + r.trunc(),
    "products of columns": lambda r, i: r.t() @ r,
    "sums of no columns": lambda r, i: r[:, :0].sum(1),
    "joined": lambda r, i: torch.cat([r, X]),
    "picked again": lambda r, i: r[(r[:, 0] > 0).nonzero()[:, 0]],
    "embedding": lambda r, i: functional.embedding(i, WEIGHT.repeat(2, 1)),
    "full": lambda r, i: torch.full((i.shape[0], 3), 2.0),
    "assignment": lambda r, i: _written(i, r),
    "addition": lambda r, i: torch.zeros(6, 4).index_add(0, i, r),
    "scatter": lambda r, i: X.scatter_add(0, i[:, None].expand(-1, 4), r),
    "greatest": lambda r, i: X.scatter_reduce(0, i[:, None].expand(-1, 4), r, "amax"),
}

SETTLED = ("topk",)  # torch makes the dynamic size static


class Picked(torch.nn.Module):
    """Select rows by data."""

    def forward(self, x, mask):
        places = mask.nonzero()[:, 0]
        rows = x[places]
        return {name: op(rows, places) for name, op in OPS.items()}


class Cut(torch.nn.Module):
    """Slice to a dynamic number of rows, `(s0 - 4) // 3`, which may be zero, beside a norm."""

    def forward(self, x):
        places = torch.arange(x.shape[0])[4:-2:3]
        rows = x[4:-2:3]
        norm = OPS["layer norm"](x, places)
        results = {name: op(rows, places) for name, op in OPS.items() if name not in SETTLED}
        return results | {"all": norm}


def _converted(module, inputs, sizes=None):
    exported = torch.export.export(module, inputs, dynamic_shapes=sizes)
    exported = exported.run_decompositions(get_decomp_table())
    return TorchConverter().add_exported_program(exported).to_coreai()


@pytest.fixture(scope="module")
def picking():
    return _converted(Picked(), (X, MASKS["some"]))


@pytest.fixture(scope="module")
def cutting():
    return _converted(Cut(), (X.clone(),), ({0: torch.export.Dim.AUTO},))


def _check(program, wanted, **inputs):
    got = runtime.run(program, inputs)
    names = runtime.descriptor(program).output_names
    for each, (name, want) in zip(names, wanted.items(), strict=True):
        value = got[each]
        assert value.shape == want.shape, name
        torch.testing.assert_close(value, want.to(value.dtype), equal_nan=True, msg=name)


@pytest.mark.parametrize("how_many", MASKS)
def test_rows_selected_by_data(picking, how_many):
    mask = MASKS[how_many]
    _check(picking, Picked()(X, mask), x=X, mask=mask)


def test_slice_that_leaves_no_rows(cutting):
    assert "?x4xf32" in str(cutting)  # otherwise torch made the sizes static
    _check(cutting, Cut()(X), x=X)


def test_sizes_that_do_not_depend_on_data_need_no_broadcast():
    def scaled(x):
        return x * WEIGHT[:, 0] + 1

    sizes = ({0: torch.export.Dim.DYNAMIC},)
    module = torch.nn.Module()
    module.forward = scaled
    exported = torch.export.export(module, (X,), dynamic_shapes=sizes)
    exported = exported.run_decompositions(get_decomp_table())
    text = str(TorchConverter().add_exported_program(exported).to_coreai())
    assert "broadcast_to" not in text


class ConstantMask(torch.nn.Module):
    """Selects with a mask of two axes that is a buffer: torch exports a data-dependent size."""

    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.tensor([[True, False, True], [False, True, True]]))

    def forward(self, x):
        return x[self.mask]


def test_a_constant_mask_selects_a_known_number_of_rows():
    x = torch.randn(2, 3, 4)
    model = ConstantMask()
    exported = torch.export.export(model, (x,)).run_decompositions(get_decomp_table())
    program = TorchConverter().add_exported_program(exported).to_coreai()
    (result,) = runtime.run(program, {"x": x}).values()
    assert torch.equal(result, model(x))
