"""A chain of elementwise ops of any length, as an exported program."""

import torch


class _Step(torch.nn.Module):
    def forward(self, x):
        return x * 1.001 + x


def exported_chain(length):
    """Return an exported program of `length` ops, built by hand: tracing it takes minutes."""
    program = torch.export.export(_Step(), (torch.ones(4),))
    graph = program.graph
    product, total = (n for n in graph.nodes if n.op == "call_function")
    output = next(n for n in graph.nodes if n.op == "output")
    last = total
    with graph.inserting_before(output):
        for _ in range(length // 2 - 1):
            scaled = graph.call_function(product.target, (last, 1.001))
            scaled.meta = dict(product.meta)
            last = graph.call_function(total.target, (scaled, last))
            last.meta = dict(total.meta)
    output.args = ((last,),)
    program.graph_signature.output_specs[0].arg.name = last.name
    return program
