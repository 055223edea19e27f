"""Locations: the module path always, the source lines in debug mode."""

from __future__ import annotations

import json

import pytest
import runtime
import torch
from staging import converted
from torch import nn

from coreai_torch import TorchConverter

Mode = TorchConverter.Mode


class Block(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn

    def forward(self, x):
        return self.fn(x)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.ModuleList([Block(torch.abs), Block(torch.neg)])

    def forward(self, x):
        return self.encoder[1](self.encoder[0](x)) + 1


def assembly(program):
    return program.mlir_module.operation.get_asm(enable_debug_info=True)


@pytest.mark.parametrize("optimized", [False, True])
@pytest.mark.parametrize("mode", [Mode.RELEASE, Mode.DEBUG], ids=str)
def test_every_op_has_its_module_path(mode, optimized):
    program = converted(Net(), torch.ones(3), mode=mode)
    if optimized:
        program.optimize()
    text = assembly(program)
    assert '"module": "encoder.0"' in text
    assert '"module": "encoder.1"' in text
    torch.testing.assert_close(
        next(iter(runtime.run(program, {"x": torch.ones(3)}).values())), torch.zeros(3)
    )


def test_debug_mode_records_node_and_source_line(tmp_path):
    program = converted(Net(), torch.ones(3), mode=Mode.DEBUG)
    program.optimize()
    text = assembly(program)
    assert '"fx_node": "neg"' in text
    assert "test_locations.py" in text
    program.save_asset(tmp_path / "debug.aimodel")
    assert b"test_locations.py" in (tmp_path / "debug.aimodel" / "main.mlirb").read_bytes()


def test_release_asset_contains_no_file_paths(tmp_path):
    program = converted(Net(), torch.ones(3))
    program.optimize()
    asset = program.save_asset(tmp_path / "release.aimodel")
    for file in asset.path.iterdir():
        data = file.read_bytes()
        assert b".py" not in data, file.name
        assert b"/" + b"tests" not in data, file.name
    json.loads((asset.path / "metadata.json").read_text())


def test_release_is_the_default():
    assert "test_locations.py" not in assembly(converted(Net(), torch.ones(3)))


def test_mode_by_name_and_unknown_mode():
    assert '"fx_node": "neg"' in assembly(converted(Net(), torch.ones(3), mode="debug"))
    with pytest.raises(ValueError, match="no mode is called 'verbose'"):
        TorchConverter(mode="verbose")
