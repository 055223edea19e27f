"""Results that torch describes wrongly are corrected where they are returned, else rejected."""

import operator

import pytest
import torch

from coreai_torch.capture import torch_faults
from coreai_torch.errors import TorchFaultError

aten = torch.ops.aten


def graph_with(target, arguments, results, read):
    """A graph with one call whose results have these fake values; `read` puts an op behind."""
    graph = torch.fx.Graph()
    inputs = []
    for i, value in enumerate(arguments):
        node = graph.placeholder(f"x{i}")
        node.meta["val"] = value
        inputs.append(node)
    call = graph.call_function(target, tuple(inputs))
    call.meta["val"] = results
    last = [call]
    if isinstance(results, tuple):
        last = [graph.call_function(operator.getitem, (call, i)) for i in range(len(results))]
        for node, value in zip(last, results, strict=True):
            node.meta["val"] = value
    if read:
        last[-1] = graph.call_function(aten.neg.default, (last[-1],))
    graph.output(tuple(last))
    return graph, call, last


LSTM = (
    aten.lstm.input,
    [torch.zeros(5, 2, 3)],
    (torch.zeros(5, 2, 4), torch.zeros(1, 1, 2, 4), torch.zeros(1, 1, 2, 4)),
)
UNIQUE = (aten._unique2.default, [torch.zeros(4)], (torch.zeros(3), torch.zeros(4), torch.zeros(3)))
BINCOUNT = (
    aten.bincount.default,
    [torch.zeros(4, dtype=torch.int64), torch.zeros(4)],
    torch.zeros(5, dtype=torch.int64),
)


def described(value):
    return tuple(value.shape), value.dtype


@pytest.mark.parametrize(
    ("fault", "right"),
    [
        (
            LSTM,
            [((5, 2, 4), torch.float32), ((1, 2, 4), torch.float32), ((1, 2, 4), torch.float32)],
        ),
        (UNIQUE, [((3,), torch.float32), ((4,), torch.int64), ((3,), torch.int64)]),
        (BINCOUNT, [((5,), torch.float32)]),
    ],
    ids=["lstm", "unique", "bincount"],
)
def test_returned_results_are_corrected(fault, right):
    graph, _, last = graph_with(*fault, read=False)
    torch_faults.repair(n for n in graph.nodes if n.op == "call_function")
    assert [described(node.meta["val"]) for node in last] == right


@pytest.mark.parametrize("fault", [LSTM, UNIQUE, BINCOUNT], ids=["lstm", "unique", "bincount"])
def test_results_that_are_read_are_rejected(fault):
    graph, _, _ = graph_with(*fault, read=True)
    with pytest.raises(TorchFaultError, match="or later") as raised:
        torch_faults.repair(n for n in graph.nodes if n.op == "call_function")
    assert torch.__version__ in str(raised.value)


def test_right_descriptions_stay():
    results = (torch.zeros(5, 2, 4), torch.zeros(1, 2, 4), torch.zeros(1, 2, 4))
    graph, call, _ = graph_with(LSTM[0], LSTM[1], results, read=True)
    torch_faults.repair(n for n in graph.nodes if n.op == "call_function")
    assert call.meta["val"] is results
