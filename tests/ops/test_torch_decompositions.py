"""Ops that torch's decomposition table covers, exported at one size and run at two."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from module_runner import check
from torch import nn

AUTO = torch.export.Dim.AUTO


def _made(*shape, whole=0):
    generator = torch.Generator().manual_seed(sum(shape) + 7)
    if whole:
        return torch.randint(0, whole, shape, generator=generator)
    return torch.randn(shape, generator=generator)


def _orders(x):
    ninths = torch.tensor([0.1, 0.5, 0.9])
    return (
        x.msort(),
        x.argsort(dim=-1, descending=True, stable=True),
        x.quantile(ninths, dim=1),
        x.quantile(0.3, dim=0, keepdim=True, interpolation="lower"),
        x.nanquantile(ninths, dim=1, interpolation="nearest"),
    )


def _index_writes(x):
    index = torch.tensor([2, 0, 2])
    rows = x[:3]
    return (
        x.index_add(0, index, rows, alpha=2),
        x.index_fill(-1, index, 4.0),
        x.index_copy(0, torch.tensor([2, 0]), x[:2]),
        x.diag_embed(1),
        torch.diagonal_copy(x, -1),
    )


def _windows(image):
    patches = F.unfold(image, (2, 3), dilation=(1, 2), padding=1, stride=(2, 1))
    line = image.flatten(1, 2)
    return (
        patches,
        *F.max_pool1d(line, 3, 2, 1, return_indices=True),
        F.adaptive_max_pool1d(line, 3),
        F.max_unpool2d(*F.max_pool2d(image, 2, return_indices=True), 2),
    )


def _folded(columns):
    return F.fold(columns, (4, 5), (2, 2), padding=(1, 0), stride=(2, 1))


def _distances(x):
    return torch.cdist(x, x[1:], p=1.0), torch.cdist(x, x[:2] + 1)


def _regressions(x):
    y = x.flip(0)
    return (
        F.smooth_l1_loss(x, y, beta=0.5),
        F.huber_loss(x, y, reduction="sum", delta=0.7),
        F.kl_div(x.log_softmax(1), y.softmax(1), reduction="batchmean"),
        F.poisson_nll_loss(x, y.abs(), full=True),
        F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), reduction="none"),
        F.cosine_embedding_loss(x, y + 1, x[:, 0].sign(), margin=0.2),
        F.triplet_margin_loss(x, y, x.roll(1, 0), swap=True),
    )


def _classifications(x, label):
    return (
        F.nll_loss(x.log_softmax(1), label, ignore_index=1),
        F.cross_entropy(x, label, label_smoothing=0.1, reduction="sum"),
        F.multi_margin_loss(x, label, p=2, margin=0.5),
        F.multilabel_margin_loss(x, torch.stack([label, label, label - label - 1, label], 1)),
    )


def _bags(table, index):
    offsets = torch.tensor([0, 2, 3])
    return (
        F.embedding_bag(index, table, offsets, mode="sum"),
        F.embedding_bag(index, table, offsets, mode="max"),
        F.embedding_bag(index.reshape(1, -1), table, mode="mean"),
    )


VARYING = {
    "orders": (_orders, lambda n: (_made(n, n + 1),)),
    "index writes": (_index_writes, lambda n: (_made(n, n),)),
    "windows": (_windows, lambda n: (_made(2, 1, n + 2, n + 4),)),
    "distances": (_distances, lambda n: (_made(n, 3),)),
    "regressions": (_regressions, lambda n: (_made(n, 4),)),
    "classifications": (_classifications, lambda n: (_made(n, 4), _made(n, whole=4))),
}


@pytest.mark.parametrize("name", VARYING)
def test_decomposed_op_at_two_sizes(name):
    function, inputs = VARYING[name]
    shapes = tuple(dict.fromkeys(range(t.dim()), AUTO) for t in inputs(4))
    check(function, inputs(4), inputs(6), dynamic_shapes=shapes)


class _Cells(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.lstm, self.gru = nn.LSTMCell(3, 4), nn.GRUCell(3, 4)
        self.rnn = nn.RNNCell(3, 4, nonlinearity="relu")

    def forward(self, x, h):
        return *self.lstm(x, (h, h + 1)), self.gru(x, h), self.rnn(x, h)


class _Fourier(nn.Module):
    def forward(self, x):
        window = torch.hann_window(8)
        spectrum = torch.stft(x, 8, 4, window=window, return_complex=True)
        back = torch.istft(spectrum, 8, 4, window=window, length=x.shape[-1])
        return torch.view_as_real(spectrum), back


STATIC = {
    "pairs": (F.pdist, (_made(5, 3),)),
    "folded": (_folded, (_made(2, 8, 12),)),
    "bags": (_bags, (_made(5, 3), torch.tensor([4, 0, 2, 2, 1]))),
    "cells": (_Cells(), (_made(2, 3), _made(2, 4))),
    "fourier": (_Fourier(), (_made(2, 32),)),
}


@pytest.mark.parametrize("name", STATIC)
def test_decomposed_op_at_one_size(name):
    module, args = STATIC[name]
    check(module, args)
