"""Shape ops, indexing and padding, exported at one size and run at others."""

from __future__ import annotations

import pytest
import runtime
import torch
import torch.nn.functional as F

import coreai_torch
from coreai_torch.ir.types import narrow

pytestmark = pytest.mark.filterwarnings("ignore:var.*degrees of freedom:UserWarning")
AUTO = torch.export.Dim.AUTO


class Call(torch.nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, *args):
        return self.fn(*args)


def _rows(n, m):
    return (torch.arange(1.0, n * m + 1).reshape(n, m),)


def _rows_and_place(n, m):
    return *_rows(n, m), torch.tensor(n - 1), torch.ones(m)


def _rows_and_index(n, m):
    return *_rows(n, m), torch.tensor([0, n - 1, -1]), torch.full((3, m), 2.0)


def _image(n, m):
    return (torch.arange(1.0, 2 * n * m + 1).reshape(1, 2, n, m),)


def _no_images(n, m):
    return (torch.ones(0, 2, n, m),)


def _assigned(x):
    y = x.clone()
    y[1:-1, ::2] = 7
    y[-1] = x[0]
    y[:, 1] = -1
    y.diagonal().fill_(3)
    return y


def _filled_empty(x):
    y = torch.empty(x.shape[1], x.shape[0])
    y[:] = x.T
    return y


def _at(x, pos, row):
    place = pos.item()
    torch._check(place >= 0)
    torch._check(place < x.shape[0])
    return torch.select_scatter(x, row, 0, place) + x.select(0, place)


def _from(x, pos, row):
    place = pos.item()
    torch._check(place >= 0)
    torch._check(place <= x.shape[0])
    return x[:place].sum(0) + x[place:].sum(0)


CALLS = {
    "slice tail": (lambda x: x[-2:, :-1], _rows),
    "slice symbolic": (lambda x: x[x.shape[1] // 2 :, : x.shape[0] // 2], _rows),
    "slice step": (lambda x: x[1::2, ::3], _rows),
    "select last": (lambda x: x[-1] + x[:, -2].sum(), _rows),
    "select middle": (lambda x: x[x.shape[0] // 2], _rows),
    "select at run time": (_at, _rows_and_place),
    "slice at run time": (_from, _rows_and_place),
    "index": (lambda x, i, _: x[i], _rows_and_index),
    "index columns": (lambda x, i, _: x.T[:, i], _rows_and_index),
    "index both": (lambda x, i, _: x[i, i % x.shape[1]], _rows_and_index),
    "index_put": (lambda x, i, v: x.index_put((i,), v), _rows_and_index),
    "index_put columns": (
        lambda x, i, v: torch.ops.aten.index_put(x.T, [None, i], v.T),
        _rows_and_index,
    ),
    "index_put sum": (lambda x, i, v: x.index_put((i,), v, accumulate=True), _rows_and_index),
    "index_add": (lambda x, i, v: x.index_add(0, i[:2], v[:2], alpha=2), _rows_and_index),
    # The axes before it have the strides 2 * n and n, which constants are multiplied by.
    "index_add behind counted axes": (
        lambda x: x[0].expand(5, 2, -1).index_add(2, torch.tensor([2, 2, 1]), torch.ones(5, 2, 3)),
        _rows,
    ),
    "mask": (lambda x: x[x % 3 == 0], _rows),
    "mask rows": (lambda x: x[x[:, 0] > 3], _rows),
    "mask assign": (lambda x: torch.where(x > 4, 0, x).masked_fill(x == 1, 9), _rows),
    "masked_scatter": (lambda x: torch.zeros_like(x).masked_scatter(x % 2 == 0, x), _rows),
    "assignments": (_assigned, _rows),
    "empty, then filled": (_filled_empty, _rows),
    "gather": (lambda x: x.gather(1, (x.long() % x.shape[1])[:, :2]), _rows),
    "scatter_add": (lambda x: x.scatter_add(0, (x.long() % x.shape[0])[:2], x), _rows),
    "arange": (lambda x: torch.arange(x.shape[1]) * 2 + torch.arange(1, 2 * x.shape[1], 2), _rows),
    "arange of floats": (lambda x: torch.arange(0.5, x.shape[1], 0.25), _rows),
    "arange down": (lambda x: torch.arange(x.shape[0] - 1, -1, -1), _rows),
    "linspace": (lambda x: torch.linspace(0, x.shape[1] - 1, 5), _rows),
    "linspace between tensors": (lambda x: torch.linspace(x[0, 0], x[-1, -1], 5), _rows),
    "eye": (lambda x: torch.eye(x.shape[0], x.shape[1]) + x, _rows),
    "full": (lambda x: torch.full((x.shape[1], 2), x.shape[0]), _rows),
    "new": (lambda x: x.new_ones(x.shape[1]) + torch.zeros_like(x), _rows),
    "tril": (lambda x: x.tril(-1) + x.triu(1), _rows),
    "diagonal": (lambda x: x.diagonal(1), _rows),
    "diagonal below": (lambda x: x.diagonal(-1), _rows),
    "diag_embed": (lambda x: torch.diag_embed(x[0], 1), _rows),
    "trace": (lambda x: x.trace(), _rows),
    "unfold": (lambda x: x.unfold(1, 3, 2), _rows),
    "unfold without overlap": (lambda x: x.unfold(0, 2, 2), _rows),
    "as_strided": (lambda x: x.as_strided((x.shape[0] - 1, 2), (x.shape[1], 1), 3), _rows),
    "as_strided of a transpose": (lambda x: x.T.as_strided((3, 2), (x.shape[1], 1)), _rows),
    "roll": (lambda x: x.roll((1, -2), (0, 1)) + x.roll(5), _rows),
    "flip": (lambda x: x.flip(0, 1).rot90(), _rows),
    "repeat": (lambda x: x.repeat(2, x.shape[0]), _rows),
    "repeat_interleave": (lambda x: x.repeat_interleave(3, 1), _rows),
    "repeat_interleave by tensor": (
        lambda x: x.repeat_interleave(torch.arange(x.shape[0]), 0),
        _rows,
    ),
    "tile": (lambda x: x.tile(2), _rows),
    "cat": (lambda x: torch.cat([x, torch.zeros(2, x.shape[1]), x[:1]]), _rows),
    "stack": (lambda x: torch.stack([x, x], -1), _rows),
    "split": (lambda x: x.split([1, x.shape[1] - 1], 1)[1], _rows),
    "unbind": (lambda x: torch.stack(x[:2].unbind(0)), _rows),
    "view": (lambda x: x.view(-1).view(x.shape[1], x.shape[0]), _rows),
    "expand": (lambda x: x[0].expand(x.shape[0], -1), _rows),
    "meshgrid": (lambda x: torch.meshgrid(x[0], x[:, 0], indexing="xy")[0], _rows),
    "pad": (lambda x: F.pad(x, (1, -1, 2, 0), value=5), _rows),
    "pad by size": (lambda x: F.pad(x, (0, 16 - x.shape[1])), _rows),
    "pad or crop": (lambda x: F.pad(x, (0, 5 - x.shape[1])), _rows),
    "reflect": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), _image),
    "replicate": (lambda x: F.pad(x, (4, 1, 0, 2), mode="replicate"), _image),
    "circular": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), _image),
    "pixel_shuffle": (lambda x: F.pixel_shuffle(x.repeat(1, 2, 1, 1), 2), _image),
    "pixel_unshuffle": (lambda x: F.pixel_unshuffle(x.repeat(1, 1, 2, 2), 2), _image),
    "channel_shuffle": (lambda x: F.channel_shuffle(x.repeat(1, 3, 1, 1), 2), _image),
    "none padded": (lambda x: F.pad(x, (1, 2)), _no_images),
    "none circular": (lambda x: F.pad(x, (1, 2, 0, 1), "circular"), _no_images),
    "none padded to a multiple": (lambda x: F.pad(x, (0, -x.shape[3] % 4)), _no_images),
    "none pooled": (lambda x: F.avg_pool2d(x, 3, 2, 1), _no_images),
    "none convolved": (lambda x: F.conv2d(x, torch.ones(3, 2, 2, 2)), _no_images),
    "none squared": (
        lambda x: x[..., None].expand(-1, -1, -1, -1, x.shape[3]).flatten(3),
        _no_images,
    ),
    "spread of none": (lambda x: torch.stack(torch.var_mean(x, 0)), _no_images),
    "greatest of none": (lambda x: x.max(-1)[0], _no_images),
}


@pytest.mark.parametrize("name", CALLS)
def test_other_sizes(name):
    fn, inputs = CALLS[name]
    model, example = Call(fn), inputs(6, 7)
    dynamic = tuple({i: AUTO for i, s in enumerate(t.shape) if s in (6, 7)} for t in example)
    exported = torch.export.export(model, example, dynamic_shapes=(dynamic,))
    exported = exported.run_decompositions(coreai_torch.get_decomp_table())
    names = [s.arg.name for s in exported.graph_signature.input_specs if s.target is None]
    program = coreai_torch.TorchConverter().add_exported_program(exported).to_coreai()
    program.optimize()
    for sizes in ((6, 7), (4, 9), (8, 5)):
        given = inputs(*sizes)
        want = model(*given)
        (got,) = runtime.run(program, dict(zip(names, given, strict=True))).values()
        want = want.to(narrow(want.dtype))
        torch.testing.assert_close(got, want, rtol=1e-5, atol=1e-5, equal_nan=True)
