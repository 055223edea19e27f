"""Run commands in this process; models for the commands."""

from __future__ import annotations

import json
from dataclasses import dataclass

import pytest
import torch

from coreai_torch import TorchConverter, get_decomp_table
from coreai_torch.cli import main

MODELS = """
import torch
from torch import nn

from coreai_torch import MetalParameter, TorchMetalKernel


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.norm = nn.LayerNorm(4)

    def forward(self, x, scale=None):
        y = torch.relu(self.norm(x))
        return y if scale is None else y * scale


if not hasattr(torch.ops.shell_models, "mystery"):

    @torch.library.custom_op("shell_models::mystery", mutates_args=())
    def mystery(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    mystery.register_fake(torch.empty_like)


class Mystery(nn.Module):
    def forward(self, x):
        return torch.ops.shell_models.mystery(x)


class Bad(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = Mystery(), Mystery()

    def forward(self, x):
        return self.first(x) + self.second(x + 1) + torch.rand(3)


def net():
    return Net()


def with_args():
    return Net(), (torch.ones(2, 4),)


def bad():
    return Bad(), (torch.ones(3, 3),)


def asks():
    class Asks(nn.Module):
        def forward(self, x):
            return x + 1 if x.sum() > 0 else x

    return Asks(), (torch.ones(3),)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


ID = MetalParameter("id", "uint", "thread_position_in_grid")
KERNEL = TorchMetalKernel("of_the_shell", ["x"], ["y"], "y[id] = x[id] * 2;", doubled, [ID])


class Calls(nn.Module):
    def forward(self, x):
        launch = {"threads_per_grid": (3, 1, 1), "threads_per_thread_group": (3, 1, 1)}
        return KERNEL(x, result_shapes=[[3]], **launch)


def kernels():
    return Calls(), (torch.ones(3),)


def pictures():
    torch.manual_seed(0)
    return nn.Conv2d(3, 2, 2).eval()


def number():
    return 3
"""


@dataclass(frozen=True)
class Result:
    code: int
    out: str
    err: str

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture
def shell(capsys, monkeypatch, tmp_path):
    """Return a function that runs a command in an empty folder with the models."""
    (tmp_path / "models.py").write_text(MODELS)
    monkeypatch.chdir(tmp_path)

    def run(*arguments):
        with pytest.raises(SystemExit) as exit_info:
            main([str(a) for a in arguments])
        printed = capsys.readouterr()
        return Result(exit_info.value.code or 0, printed.out, printed.err)

    return run


def saved(path, model, *args, mode=None, **names):
    """Save an asset without the command line."""
    program = torch.export.export(model.eval(), args).run_decompositions(get_decomp_table())
    converter = TorchConverter(mode).add_exported_program(program, **names)
    converted = converter.to_coreai()
    converted.optimize()
    converted.save_asset(path)
    return path
