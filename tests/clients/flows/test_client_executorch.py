"""The Core AI backend of executorch delegates a model to this converter."""

import pytest
import torch
from torch import nn

pytest.importorskip("executorch", reason="executorch is not installed")


def test_whole_model_is_delegated():
    from executorch.backends.apple.coreai.partition import CoreAIPartitioner
    from executorch.exir import to_edge_transform_and_lower

    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    exported = torch.export.export(model, (torch.randn(2, 8),))
    edge = to_edge_transform_and_lower(exported, partitioner=[CoreAIPartitioner()])
    calls = [n for n in edge.exported_program().graph.nodes if n.op == "call_function"]
    names = [str(node.target) for node in calls]
    assert "executorch_call_delegate" in names[0]
    assert not any("aten" in name for name in names), names
