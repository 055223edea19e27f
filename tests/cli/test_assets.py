"""The commands that take an asset: inspect, run, bench, diff, strip, doctor, ops."""

from __future__ import annotations

import wave

import numpy as np
import pytest
import torch
from cli.shell import saved
from PIL import Image
from torch import nn

from coreai_torch import MetalParameter, TorchConverter, TorchMetalKernel, get_decomp_table
from coreai_torch.cli.tensors import read, write
from coreai_torch.verification import self_check
from coreai_torch.verification.self_check import case_runs


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(0, 1, 4))
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x, y):
        self.count.add_(1)
        return torch.layer_norm(x, (4,)) * self.weight, y * 2


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    path = tmp_path_factory.mktemp("assets") / "counter.aimodel"
    args = (torch.ones(2, 4), torch.ones(3, dtype=torch.int32))
    return saved(path, Counter(), *args, output_names=["normed", "doubled"])


def test_inspect_lists_ports_states_composites_weights_and_ops(shell, counter):
    data = shell("inspect", counter, "--json").json
    (function,) = data["functions"]
    assert [p["name"] for p in function["inputs"]] == ["x", "y"]
    assert [p["name"] for p in function["outputs"]] == ["normed", "doubled"]
    assert [p["name"] for p in function["states"]] == ["b_count"]
    assert data["composites"] == {"layer_norm": 1}
    assert data["weights"]["f32"][0] >= 1
    assert data["ops"]["coreai.invoke"] == 1
    assert data["file_bytes"] > 0
    text = shell("inspect", counter).out
    assert "state   b_count: f32[1]" in text
    assert "1  layer_norm" in text


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_run_reads_and_writes_tensors(shell, counter, tmp_path, suffix):
    x, y = torch.randn(2, 4), torch.tensor([1, 2, 3])
    write(tmp_path / f"in{suffix}", {"x": x, "y": y.int()})
    result = shell("run", counter, f"in{suffix}", "-o", f"out{suffix}")
    assert result.code == 0, result.err
    made = read(tmp_path / f"out{suffix}")
    assert made["doubled"].tolist() == [2, 4, 6]
    torch.testing.assert_close(made["normed"], Counter()(x, y)[0].detach(), rtol=1e-5, atol=1e-5)
    assert made["b_count"].tolist() == [1], "states start as zeros and come with the outputs"


class Negative(nn.Module):
    def forward(self, x):
        return 1 - x


def test_run_reads_and_writes_images(shell, tmp_path):
    asset = saved(tmp_path / "n.aimodel", Negative(), torch.ones(1, 3, 4, 5), output_names=["made"])
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    Image.fromarray(pixels).save("photo.png")
    result = shell("run", asset, "x=photo.png", "-o", "made=negative.png", "--engine", "torch")
    assert result.code == 0, result.err
    assert np.array_equal(np.array(Image.open("negative.png")), 255 - pixels)


def test_run_reads_and_writes_audio(shell, tmp_path):
    asset = saved(tmp_path / "n.aimodel", Negative(), torch.ones(1, 6), output_names=["made"])
    with wave.open("in.wav", "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(8000)
        file.writeframes(np.array([0, 8192, 16384, -8192, 0, 1], "<i2").tobytes())
    result = shell(
        "run", asset, "x=in.wav", "-o", "made=out.wav", "-o", "out.npz", "--engine", "torch"
    )
    assert result.code == 0, result.err
    numbers = np.load("out.npz")["made"]
    np.testing.assert_allclose(numbers[0, :4], [1, 0.75, 0.5, 1.25])
    with wave.open("out.wav", "rb") as file:
        samples = np.frombuffer(file.readframes(6), "<i2")
    assert samples[:4].tolist() == [32767, 24575, 16384, 32767]


def test_run_rejects_missing_and_unknown_inputs(shell, counter, tmp_path):
    write(tmp_path / "x.npz", {"x": torch.ones(2, 4)})
    result = shell("run", counter, "x.npz")
    assert (result.code, "missing inputs ['y']" in result.err) == (2, True)
    result = shell("run", counter, "z=x.npz")
    assert "no input 'z'; the inputs are ['x', 'y']" in result.err
    (tmp_path / "x.csv").write_text("1")
    assert "supported formats are .npz" in shell("run", counter, "x=x.csv").err


def test_bench_times_calls(shell, counter):
    data = shell("bench", counter, "--runs", 5, "--json").json
    assert data["runs"] == 5
    assert 0 < data["min_ms"] <= data["median_ms"] <= data["p90_ms"]


class Half(nn.Module):
    def forward(self, x):
        return torch.relu(x) * 0.5


class Third(nn.Module):
    def forward(self, x):
        return torch.relu(x) / 3


def test_diff_finds_ops_weights_and_ports(shell, tmp_path):
    one = saved(tmp_path / "one.aimodel", Half(), torch.ones(3))
    assert shell("diff", one, one).code == 0
    two = saved(tmp_path / "two.aimodel", Third(), torch.ones(3), input_names=["z"])
    result = shell("diff", one, two, "--json")
    assert result.code == 1
    kinds = {d["what"] for d in result.json["differences"]}
    assert {"inputs", "outputs", "weights"} <= kinds
    assert "inputs of main" in shell("diff", one, two).out


DEBUG = TorchConverter.Mode.DEBUG


def test_strip_removes_locations_only(shell, tmp_path):
    asset = saved(tmp_path / "debug.aimodel", Half(), torch.ones(3), mode=DEBUG)
    before = shell("doctor", asset, "--json").json["hazards"]
    assert [h["code"] for h in before] == ["HAZ05"]
    result = shell("strip", asset, "-o", "small.aimodel")
    assert result.code == 0, result.err
    stored = (tmp_path / "small.aimodel" / "main.mlirb").read_bytes()
    assert b"test_assets" not in stored
    assert shell("diff", asset, "small.aimodel").code == 0
    assert shell("strip", asset).code == 0, "in place"
    assert shell("doctor", asset, "--json").json["hazards"] == []


class Odd(nn.Module):
    def forward(self, x, mask):
        order = torch.argsort(x.half())
        wide = x.reshape(1, 1, 1, 1, 1, 3) * 2
        return order, torch.where(mask, wide.reshape(3), 0), x.nonzero()


def test_doctor_lists_hazards_and_environment(shell, tmp_path):
    asset = saved(tmp_path / "odd.aimodel", Odd(), torch.rand(3), torch.ones(3, dtype=torch.bool))
    result = shell("doctor", asset, "--json")
    assert result.code == 0, "warnings alone do not fail"
    codes = {h["code"] for h in result.json["hazards"]}
    assert {"HAZ04", "HAZ06", "HAZ07", "HAZ10"} <= codes
    assert torch.__version__.startswith(result.json["environment"]["torch"])
    assert "boolean inputs, which devices reject" in shell("doctor", asset).out


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def test_inspect_and_doctor_report_kernels(shell, tmp_path):
    identity = MetalParameter("id", "uint", "thread_position_in_grid")
    source = "y[id] = x[id] * 2;"
    kernel = TorchMetalKernel("shown_by_inspect", ["x"], ["y"], source, doubled, [identity])

    class Calls(nn.Module):
        def forward(self, x):
            launch = {"threads_per_grid": (3, 1, 1), "threads_per_thread_group": (3, 1, 1)}
            return kernel(x, result_shapes=[[3]], **launch)

    program = torch.export.export(Calls(), (torch.ones(3),)).run_decompositions(get_decomp_table())
    converter = TorchConverter().register_custom_kernels([kernel]).add_exported_program(program)
    converter.to_coreai().save_asset(tmp_path / "k.aimodel")
    (name,) = shell("inspect", "k.aimodel", "--json").json["kernels"]
    assert "shown_by_inspect" in name
    assert [h["code"] for h in shell("doctor", "k.aimodel", "--json").json["hazards"]] == ["HAZ09"]


def test_inspect_reports_damaged_asset(shell, tmp_path):
    asset = saved(tmp_path / "one.aimodel", Half(), torch.ones(3))
    (asset / "main.mlirb").write_bytes(b"nonsense")
    result = shell("inspect", asset)
    assert result.code == 2
    assert "is damaged" in result.err


def test_ops_lists_and_checks(shell):
    result = shell("ops", "log_softmax", "--json")
    assert [op["name"] for op in result.json["ops"]] == ["aten._log_softmax.default"]
    checked = shell("ops", "aten::trunc", "--check", "--json")
    assert checked.code == 0, checked.out
    assert checked.json["runs"] >= 2
    assert checked.json["failed"] == []
    unknown = shell("ops", "no such op")
    assert unknown.code == 1
    assert "run coreai-torch check on a model" in unknown.out


def test_ops_accepts_both_spellings_of_a_name(shell):
    assert shell("ops", "aten::trunc").out == shell("ops", "aten.trunc").out
    assert case_runs("aten::trunc") == case_runs("aten.trunc.default") != []


def test_checking_all_ops_prints_count_and_hint(shell, monkeypatch):
    runs = case_runs("aten.trunc")
    monkeypatch.setattr(self_check, "case_runs", lambda pattern="": runs)
    result = shell("ops", "--check")
    assert result.code == 0, result.out
    assert f"{len(runs)} runs of 1 op; pass part of a name to run fewer" in result.err
    assert "coreai-torch ops softmax --check" in result.err
    assert shell("ops", "--check", "--json").err == ""


def test_lint_reports_findings_and_exits_with_1_on_errors(shell, tmp_path):
    asset = saved(tmp_path / "odd.aimodel", Odd(), torch.rand(3), torch.ones(3, dtype=torch.bool))
    result = shell("lint", asset, "--json")
    assert result.code == 0, "warnings alone do not fail"
    assert {"HAZ04", "HAZ06"} <= {f["code"] for f in result.json["findings"]}
    assert shell("lint", asset, "--strict").code == 1
    assert "HAZ06" not in shell("lint", asset, "--target", "gpu").out
    assert shell("lint", asset, "--target", "npu").code == 3


class TwoLayers(nn.Module):
    def __init__(self, width=24):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, width))

    def forward(self, x):
        return self.body(x)


def test_diff_names_the_weight_that_changed(shell, tmp_path):
    one, two = TwoLayers(), TwoLayers()
    with torch.no_grad():
        two.body[2].weight[3, :2] += 0.5
        two.body[0].bias[1] += 0.25
    first = saved(tmp_path / "one.aimodel", one, torch.ones(2, 24))
    second = saved(tmp_path / "two.aimodel", two, torch.ones(2, 24))
    result = shell("diff", first, second, "--json")
    (difference,) = result.json["differences"]
    bias, weight = sorted(difference["description"].splitlines())
    assert "'body.2.weight' of module 'body.2'" in bias + weight
    lines = {"weight'" in line: line for line in (bias, weight)}
    assert "2 of 576 elements differ, by at most 0.5" in lines[True]
    assert "first read by decomposable.broadcasting_batch_matmul" in lines[True]
    assert "'body.0.bias' of module 'body.0'" in lines[False]  # too short to be stored by name
    assert "1 of 24 elements differ, by at most 0.25" in lines[False]
    assert "first read by decomposable.broadcasting_add" in lines[False]
