"""Create programs for the tests of the seed documents, and parse their printed modules."""

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from coreai_torch import TorchConverter, get_decomp_table


def exported(module: nn.Module, *args: Tensor, **kwargs: Any) -> torch.export.ExportedProgram:
    """Return a decomposed program."""
    program = torch.export.export(module.eval(), args, **kwargs)
    return program.run_decompositions(get_decomp_table())


def converted(module: nn.Module, *args: Tensor, **names: Any) -> Any:
    """Convert with `add_exported_program` and optimize."""
    program = TorchConverter().add_exported_program(exported(module, *args), **names).to_coreai()
    program.optimize()
    return program


def externalized(module: nn.Module, *args: Tensor, modules: list[Any]) -> Any:
    """Convert with `add_pytorch_module` and externalized submodules, and optimize."""
    converter = TorchConverter().add_pytorch_module(
        module.eval(), export_fn=lambda m: exported(m, *args), externalize_modules=modules
    )
    program = converter.to_coreai()
    program.optimize()
    return program


def assert_close(actual: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(actual, expected.detach(), rtol=1e-5, atol=1e-5)


@dataclass(frozen=True)
class Graph:
    """One `coreai.graph` of a printed module."""

    name: str
    private: bool
    noinline: bool
    composite: str | None
    inputs: list[str]
    outputs: list[str]
    attrs: dict[str, str] = field(hash=False)
    body: str
    argument_count: int

    @property
    def callees(self) -> list[str]:
        return [
            name.strip('"') for name in re.findall(r'coreai\.invoke @("[^"]+"|[^(\s]+)', self.body)
        ]


_HEADER = re.compile(r'^  coreai\.graph (private )?(noinline )?@("[^"]+"|[^(\s]+)\(', re.MULTILINE)
_DECLARATION = re.compile(r'composite_declaration<"(?P<name>[^"]+)" = \{(?P<payload>.*)\}>')


def graphs(program: Any) -> dict[str, Graph]:
    """Return the graphs of a program by name, parsed from its text."""
    text = str(program)
    headers = list(_HEADER.finditer(text))
    ends = [header.start() for header in headers[1:]] + [len(text)]
    found = [
        _graph(header, text[header.start() : end])
        for header, end in zip(headers, ends, strict=True)
    ]
    return {graph.name: graph for graph in found}


def composites(program: Any, name: str) -> list[Graph]:
    """Return the graphs that are declared as the composite op `name`."""
    return [graph for graph in graphs(program).values() if graph.composite == name]


def _graph(header: re.Match[str], text: str) -> Graph:
    first, _, body = text.partition("\n")
    declared = _DECLARATION.search(first)
    payload = declared["payload"] if declared else ""
    return Graph(
        name=header[3].strip('"'),
        private=bool(header[1]),
        noinline=bool(header[2]),
        composite=declared["name"] if declared else None,
        inputs=_strings(payload, "input_names"),
        outputs=_strings(payload, "output_names"),
        attrs=_attributes(payload),
        body=body,
        argument_count=len(re.findall(r"%arg\d+: ", first)),
    )


def _strings(payload: str, key: str) -> list[str]:
    found = re.search(rf"{key} = \[([^\]]*)\]", payload)
    return re.findall(r'"([^"]*)"', found[1]) if found else []


def _attributes(payload: str) -> dict[str, str]:
    found = re.search(r"op_attrs = \{([^}]*)\}", payload)
    return dict(re.findall(r"(\w+) = (\[[^\]]*\]|[^,]+)", found[1])) if found else {}
