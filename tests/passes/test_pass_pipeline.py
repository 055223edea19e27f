"""The order of the passes, and what `dump_passes` writes."""

import torch
from pass_graphs import exported, pass_graph

import coreai_torch
from coreai_torch.passes import pipeline


def network():
    return torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).eval()


def test_the_observer_sees_each_pass_in_order():
    graph, _build = pass_graph(network(), torch.ones(1, 3, 5, 5))
    seen = []
    pipeline.run(graph, observe=lambda name, _: seen.append(name))
    assert seen == [
        "externalize",
        "dead_code",
        "fold_constants",
        "fillers",
        "fuse_batch_norm",
        "zero_size",
        "merge_writes",
    ]


def test_dump_passes_writes_a_file_for_each_pass(tmp_path):
    program = exported(network(), torch.ones(1, 3, 5, 5))
    converter = coreai_torch.TorchConverter(dump_passes=tmp_path)
    converter.add_exported_program(program, entrypoint_name="net").to_coreai()
    files = sorted(tmp_path.rglob("*.txt"))
    assert [str(f.relative_to(tmp_path)) for f in files] == [
        "net/00-captured.txt",
        "net/01-externalize.txt",
        "net/02-dead_code.txt",
        "net/03-fold_constants.txt",
        "net/04-fillers.txt",
        "net/05-fuse_batch_norm.txt",
        "net/06-zero_size.txt",
        "net/07-merge_writes.txt",
    ]
    captured, fused = files[0].read_text(), files[5].read_text()
    assert "= aten.convolution.default(%input, %p_0_weight" in captured.replace("input_1", "input")
    assert "%p_0_weight: float32[4, 3, 3, 3] (0.weight)" in captured
    assert "= aten.convolution.default" not in fused
    assert "fused with %convolution" in fused


class Norm(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(8))

    def forward(self, x):
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


def test_dump_passes_shows_the_graph_before_and_after_recognition(tmp_path):
    converter = coreai_torch.TorchConverter(recognize=True, dump_passes=tmp_path)
    converter.add_exported_program(exported(Norm(), torch.ones(2, 8))).to_coreai()
    before = (tmp_path / "main" / "00-captured.txt").read_text()
    after = (tmp_path / "main" / "01-recognize.txt").read_text()
    assert "rsqrt" in before
    assert "rms_norm" not in before
    assert "rms_norm" in after


def test_a_second_conversion_replaces_the_files(tmp_path):
    converter = coreai_torch.TorchConverter(dump_passes=tmp_path)
    converter.add_exported_program(exported(network(), torch.ones(1, 3, 5, 5)))
    converter.to_coreai()
    converter.to_coreai()
    assert len(list(tmp_path.rglob("*.txt"))) == 8
