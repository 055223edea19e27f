"""A failed export names the user's line, the cause and a hint; torch's own output is dropped."""

from __future__ import annotations

import logging

import numpy as np
import pytest
import torch
from torch import nn
from torch.export import Dim

from coreai_torch import convert, progress
from coreai_torch.capture import torch_output
from coreai_torch.capture.eager import eager_failure
from coreai_torch.errors import ConversionError, ExportError, shortened

X = torch.ones(2, 4)


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x, scale: float = 1.0):
        return self.linear(x) * scale


class Branches(nn.Module):
    def forward(self, x):
        y = torch.relu(x)
        return y if y.sum() > 0 else x  # branches


class Reads(nn.Module):
    def forward(self, x):
        return x[: int(x.sum().item())]  # reads


class UsesNumpy(nn.Module):
    def forward(self, x):
        return torch.from_numpy(x.numpy() * 2)  # numpy


class Casts(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x):
        self.linear = self.linear.to(torch.float32)  # casts
        return self.linear(x)


class Packs(nn.Module):
    def __init__(self):
        super().__init__()
        self.lstm = nn.LSTM(4, 3, batch_first=True)

    def forward(self, x):
        lengths = (x[:, 0] > 1).long() + 1
        packed = nn.utils.rnn.pack_padded_sequence(
            x.unsqueeze(1).expand(-1, 2, -1), lengths, batch_first=True, enforce_sorted=False
        )
        return self.lstm(packed)[1][0]  # packs


class Fixes(nn.Module):
    def forward(self, x):
        return x.reshape(2, 4)


def scripted():
    return torch.jit.script(Scaled())


def message_of(model, args, **options):
    with pytest.raises(ExportError) as raised:
        convert(model, args, verify=False, **options)
    message = str(raised.value)
    assert message.endswith("\n  code  CAT109")
    assert max(map(len, message.splitlines())) <= 500
    return message


@pytest.mark.parametrize(
    ("model", "comment", "hint"),
    [
        (Branches(), "# branches", "use torch.where or torch.cond instead of if"),
        (Reads(), "# reads", "use torch.where or torch.cond instead of if"),
        (UsesNumpy(), "# numpy", "numpy cannot be traced"),
        (Casts(), "# casts", "call .to() on the module before the conversion"),
        (Packs(), "# packs", "pass the padded tensor to the layer"),
    ],
    ids=["branch on data", "item", "numpy", "cast of a module", "packed sequence"],
)
def test_error_names_the_line_of_the_user(model, comment, hint, capfd):
    message = message_of(model, (X,))
    assert f'at    File "{__file__}", line ' in message
    assert comment in message
    assert "coreai_torch" not in message
    assert hint in message
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("make", "args", "options", "problem", "hint"),
    [
        (scripted, (X,), {}, "Scaled is a ScriptModule", "pass the nn.Module"),
        (
            Scaled,
            (X.numpy(),),
            {},
            "args[0] is a ndarray of numpy",
            "pass torch.as_tensor(args[0])",
        ),
        (
            Scaled,
            (),
            {"kwargs": {"x": np.float32(1)}},
            "kwargs['x'] is a float32 of numpy",
            "torch.as_tensor",
        ),
        (
            Scaled,
            (X[:1],),
            {"dynamic_shapes": ({0: Dim("n")},)},
            "the dynamic size n is 1 in the example input",
            "pass an example input whose size n is at least 2",
        ),
        (
            Fixes,
            (X,),
            {"dynamic_shapes": ({0: Dim("n")},)},
            "fixes the dynamic size n to 2",
            "instead of the number 2",
        ),
        (
            Scaled,
            (X,),
            {"dynamic_shapes": {"x": {0: "batch"}}},
            "dynamic_shapes has the text 'batch'",
            "pass torch.export.Dim('batch')",
        ),
        (
            Scaled,
            (X,),
            {"dynamic_shapes": {"y": {0: Dim("n")}}},
            "has the keys ['y'], but the given arguments are ['x']",
            "use the keys ['x']",
        ),
        (
            Scaled,
            (X,),
            {"dynamic_shapes": ({}, {})},
            "does not have the structure of the inputs",
            "pass one entry for each argument",
        ),
        (
            Scaled,
            (X,),
            {"kwargs": {"scal": 1.0}},
            "got an unexpected keyword argument 'scal'",
            "did you mean 'scale'?",
        ),
        (Scaled, (), {"kwargs": {}}, "missing a required argument: 'x'", "as for a call"),
        (
            Scaled,
            (torch.ones(2, 5),),
            {},
            "Scaled itself fails on the given inputs: RuntimeError: mat1 and mat2",
            "pass inputs that the model accepts",
        ),
    ],
)
def test_each_cause_has_its_hint(make, args, options, problem, hint, capfd):
    message = message_of(make(), args, **options)
    assert problem in message.splitlines()[0]
    assert hint in message.partition("\n  try   ")[2]
    assert capfd.readouterr() == ("", "")


def test_model_that_fails_in_eager_is_reported_before_the_export(monkeypatch):
    monkeypatch.setattr(torch.export, "export", None)
    embedding, ids = nn.Embedding(4, 2), torch.tensor([9])  # the export of this one succeeds
    with pytest.raises(ExportError, match="Embedding itself fails on the given inputs: IndexError"):
        convert(embedding, (ids,))


class Counts(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(1))
        self.register_buffer("last", torch.zeros(2))
        self.calls = 0

    def forward(self, x):
        self.calls += 1
        self.count += 1
        self.last = x + torch.rand(2)
        self.extra = 1
        x.mul_(2)
        return x + self.count


def test_eager_run_leaves_no_trace():
    model, x = Counts(), torch.ones(2)
    last, numbers = model.last, torch.get_rng_state()
    assert eager_failure(model, (x,), None) is None
    assert (model.calls, float(model.count), hasattr(model, "extra")) == (0, 0.0, False)
    assert model.last is last
    assert torch.equal(x, torch.ones(2))
    assert torch.equal(torch.get_rng_state(), numbers)


def test_torch_output_is_shown_on_request(capfd, monkeypatch):
    monkeypatch.setattr(progress, "_verbose", True)
    message_of(Branches(), (X,))
    assert "def forward(self, arg0_1" in capfd.readouterr().err


def test_log_lines_of_other_threads_are_kept():
    kept = []
    handler = logging.Handler()
    handler.emit = kept.append
    logger = logging.getLogger("torch.for_this_test")
    logger.addHandler(handler)
    record = logger.makeRecord("torch", logging.ERROR, "file", 1, "text", (), None)
    with torch_output.quiet_torch():
        logger.handle(record)
        assert not kept
        record.thread = -1
        logger.handle(record)
    assert kept == [record]
    assert not handler.filters


def test_long_lines_are_cut_in_the_middle():
    text = "s0 + " * 1000
    assert len(shortened(text, 200)) <= 200
    message = str(ConversionError(f"first {text}\n  try   second"))
    assert max(map(len, message.splitlines())) <= 500
    assert message.endswith("  try   second\n  code  CAT101")


class Variadic(nn.Module):
    def forward(self, a, *others):
        return a + others[0] + others[1]


@pytest.mark.parametrize(
    "shapes",
    [
        ({0: Dim("n")}, {0: Dim("n")}, {0: Dim("n")}),
        {"a": {0: Dim("n")}, "others": [{0: Dim("n")}, {0: Dim("n")}]},
        {"a": {0: Dim("n")}, "b": None, "c": None},
    ],
    ids=["flat", "a list", "other names"],
)
def test_sizes_of_variadic_arguments_are_one_tuple(shapes):
    with pytest.raises(ExportError, match=r"pass {'a': None, 'others': \(None, None,\)}"):
        convert(Variadic(), (X, X, X), dynamic_shapes=shapes)
    right = {"a": {0: Dim("n")}, "others": ({0: Dim("n")}, {0: Dim("n")})}
    convert(Variadic(), (X, X, X), dynamic_shapes=right, verify=False)
