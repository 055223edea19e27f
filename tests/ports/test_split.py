"""A chain of parts gives the same bytes as the program that was not split."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from runtime import descriptor, run, run_with_state
from torch import nn

import coreai_torch
from coreai_torch import errors
from coreai_torch.capture.prepare import prepare
from coreai_torch.cli import main
from coreai_torch.converter import capture_rules
from coreai_torch.surgery.splitting import divide

WIDTH = 16


class Block(nn.Module):
    """A feed-forward block with a state."""

    def __init__(self, stateful: bool) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 2 * WIDTH), nn.Linear(2 * WIDTH, WIDTH)
        self.stateful = stateful
        self.register_buffer("mean", torch.zeros(WIDTH))

    def forward(self, x):
        if self.stateful:
            self.mean.add_(x.mean((0, 1)))
        return x + self.down(self.up(x).relu()) + self.mean


class Decoder(nn.Module):
    """Blocks between an embedding and a head that share their weight; sizes are used late."""

    def __init__(self, blocks: int = 4, stateful: bool = True) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.embed = nn.Embedding(40, WIDTH)
        self.blocks = nn.ModuleList(Block(stateful) for _ in range(blocks))

    def forward(self, ids):
        x = self.embed(ids)
        for block in self.blocks:
            x = block(x)
        x = x + torch.arange(ids.shape[1])[None, :, None].to(x.dtype) * ids.shape[0]
        return x @ self.embed.weight.T, ids + 1


IDS = torch.arange(10).reshape(2, 5)
DYNAMIC = {"ids": {0: torch.export.Dim("b", min=1, max=8), 1: torch.export.Dim("t", min=2, max=16)}}


def same_bytes(found, want):
    return found.dtype == want.dtype and torch.equal(found, want)


@pytest.mark.parametrize("parts", [2, 4])
def test_chain_with_states_and_dynamic_sizes_gives_the_same_bytes(parts, tmp_path):
    model = Decoder().eval()
    names = {"dynamic_shapes": DYNAMIC, "output_names": ["logits", "next"]}
    whole = coreai_torch.convert(model, (IDS,), verify=False, **names)
    manifest = coreai_torch.split(
        model, (IDS,), parts=parts, output=tmp_path / "net", verify=False, **names
    )
    assert [part.file for part in manifest.parts] == [f"part-{i + 1}.aimodel" for i in range(parts)]
    assert manifest.shared_weights == ("embed.weight",)
    assert max(p.weight_bytes for p in manifest.parts) < 0.7 * sum(
        p.weight_bytes for p in manifest.parts
    )
    state = {name: torch.zeros(WIDTH) for name in descriptor(whole).state_names}
    with coreai_torch.load_parts(tmp_path / "net") as net:
        for ids in (IDS, torch.arange(12).reshape(3, 4)):
            found = net(ids)
            want, state = run_with_state(whole, {"ids": ids}, state)
            assert all(same_bytes(found[name], want[name]) for name in ("logits", "next"))
            assert all(same_bytes(net.state(name), value) for name, value in state.items())


def test_float16_model_and_torch_engine(tmp_path):
    model = Decoder(2, stateful=False).eval().half()
    whole = coreai_torch.convert(model, (IDS,), verify=False, output=tmp_path / "whole.aimodel")
    coreai_torch.split(model, (IDS,), parts=2, output=tmp_path / "net", verify=False)
    want = list(coreai_torch.to_torch(whole)(IDS).values())
    with coreai_torch.load_parts(tmp_path / "net", engine="torch") as net:
        found = list(net(ids=IDS).values())
    assert found[0].dtype == torch.float16
    assert all(same_bytes(f, w) for f, w in zip(found, want, strict=True))


def test_parts_are_verified_and_written_as_a_whole(tmp_path):
    model = Decoder(2, stateful=False).eval()
    for _ in range(2):  # the second replaces the first
        coreai_torch.split(model, (IDS,), parts=2, output=tmp_path / "net")
    names = sorted(path.name for path in (tmp_path / "net").iterdir())
    assert names == ["manifest.json", "part-1.aimodel", "part-2.aimodel"]
    data = json.loads((tmp_path / "net" / "manifest.json").read_text())
    assert data["parts"][1]["inputs"][0] in data["parts"][0]["outputs"]
    assert [path.name for path in tmp_path.iterdir()] == ["net"]


def captured(model, args):
    return prepare(model, args, rules=capture_rules(None))


def test_max_bytes_limits_each_part():
    model = Decoder(6, stateful=False).eval()
    one = captured(model, (IDS,))
    limit = 8000
    parts = divide(one, [IDS], max_bytes=limit)
    assert len(parts) > 2
    assert all(part.weight_bytes <= limit for part in parts)
    with pytest.raises(errors.ConversionError, match="max_bytes=1000"):
        divide(one, [IDS], max_bytes=1000)


class Everywhere(nn.Module):
    """Reads one state in every layer and writes it at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x):
        for layer in self.layers:
            x = layer(x) + self.seen
        self.seen.add_(x.sum(0))
        return x


def test_state_that_spans_the_model_is_not_cut():
    with pytest.raises(errors.ConversionError, match="cannot be cut into 4 parts"):
        divide(captured(Everywhere().eval(), (torch.rand(2, 4),)), [torch.rand(2, 4)], parts=4)


class Residuals(nn.Module):
    """Many values are live inside of a block, one between blocks."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(6))

    def forward(self, x):
        for a, b in zip(self.layers[::2], self.layers[1::2], strict=True):
            y = a(x)
            x = b(y.relu()) + y.sigmoid() + y.tanh() + x
        return x


def test_cut_is_where_few_tensors_cross():
    parts = divide(captured(Residuals().eval(), (torch.rand(2, 8),)), [torch.rand(2, 8)], parts=3)
    assert [len(part.names.inputs) for part in parts] == [1, 1, 1]
    assert len({part.weight_bytes for part in parts}) == 1


class Tables(nn.Module):
    """Convolutions with batch norm, and a table that every layer computes from a weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.convs = nn.ModuleList(nn.Conv2d(4, 4, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.BatchNorm2d(4) for _ in range(3))
        self.table = nn.Parameter(torch.rand(4, 1, 1))

    def forward(self, x):
        scale = self.table.sin() + torch.arange(4.0).reshape(4, 1, 1)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = norm(conv(x)) * scale
        return x


def test_constants_do_not_cross_and_batch_norms_stay_fused(tmp_path):
    model, x = Tables().eval(), torch.rand(1, 4, 6, 6)
    whole = coreai_torch.convert(model, (x,), verify=False, output_names=["y"])
    manifest = coreai_torch.split(
        model, (x,), parts=3, output=tmp_path / "net", verify=False, output_names=["y"]
    )
    assert [len(part.inputs) for part in manifest.parts] == [1, 1, 1]
    assert "table" in manifest.shared_weights
    with coreai_torch.load_parts(tmp_path / "net") as net:
        assert same_bytes(net(x)["y"], run(whole, {"x": x})["y"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "needs parts or max_bytes"),
        ({"parts": 2, "max_bytes": 10}, "not both"),
        ({"parts": 0}, "parts is 0"),
        ({"parts": 99}, "99 parts"),
        ({"parts": 2, "target": "npu"}, "target is 'npu'"),
    ],
)
def test_wrong_requests_are_rejected(options, message, tmp_path):
    with pytest.raises(errors.ConversionError, match=message):
        coreai_torch.split(nn.Linear(2, 2), (torch.rand(1, 2),), output=tmp_path / "n", **options)


def test_unknown_arguments_and_inputs_are_rejected(tmp_path):
    model, x = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2)), torch.rand(1, 2)
    options = {"parts": 2, "output": tmp_path / "n", "verify": False}
    with pytest.raises(errors.ArgumentTypeError, match="split has no argument 'sizes'"):
        coreai_torch.split(model, (x,), sizes=[(1, 2)], **options)
    coreai_torch.split(model, (x,), target="any", **options)
    unknown = "'input'] are missing, .*'y'] are unknown"
    with (
        coreai_torch.load_parts(tmp_path / "n", engine="torch") as net,
        pytest.raises(errors.NamingError, match=unknown),
    ):
        net(y=x)


def test_asset_and_folder_of_others_are_rejected(tmp_path):
    with pytest.raises(errors.ArgumentTypeError, match="cannot be split"):
        coreai_torch.split(tmp_path / "net.aimodel", parts=2, output=tmp_path / "net")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(FileExistsError, match="not a folder of an earlier split"):
        coreai_torch.split(nn.ReLU(), (torch.rand(1),), parts=1, output=tmp_path / "other")


def call(*arguments):
    with pytest.raises(SystemExit) as exit_info:
        main([str(argument) for argument in arguments])
    return exit_info.value.code or 0


def test_commands_split_and_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "chain.py").write_text(
        "from torch import nn\n\n\ndef net():\n"
        "    return nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).eval()\n"
    )
    source = ["chain.py:net", "-i", "input=f32[2,4]", "--verify", "none"]
    assert call("split", *source, "--max-bytes", "0.2KB", "-o", "parts", "--json") == 0
    assert len(json.loads(capsys.readouterr().out)["parts"]) == 2
    np.savez("x.npz", input=np.ones((2, 4), np.float32))
    assert call("run", "parts", "x.npz", "-o", "y.npz", "--json") == 0
    assert json.loads(capsys.readouterr().out)["written"] == ["y.npz"]
    assert call("split", *source, "-o", "parts") == 2
