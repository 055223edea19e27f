"""Only torch_compat.py uses private names of torch, which change between versions."""

import ast
from pathlib import Path

import pytest

import coreai_torch

ROOT = Path(coreai_torch.__file__).parent
MODULES = sorted(path for path in ROOT.rglob("*.py") if path.name != "torch_compat.py")
# Private attributes of torch objects, which import statements do not show.
ATTRIBUTES = {
    "_dispatch_cache",
    "_guards_code",
    "_has_symbolic_sizes_strides",
    "_is_view",
    "_schema",
}


def chain(node):
    """Return ["a", "b", "c"] for `a.b.c`, and None for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else None


def is_private(names):
    return any(n.startswith("_") and not n.startswith("__") for n in names)


def private_names(source):
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "torch":
            for alias in node.names:
                if not node.level and is_private([*node.module.split("."), alias.name]):
                    yield f"{node.module}.{alias.name}"
        elif isinstance(node, ast.Attribute):
            names = chain(node) or []
            torch_name = names[:1] == ["torch"] and names[1] != "ops" and is_private(names)
            if torch_name or node.attr in ATTRIBUTES:
                yield ".".join(names) or node.attr


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("from torch._ops import OpOverload", ["torch._ops.OpOverload"]),
        ("from torch.utils import _pytree as pytree", ["torch.utils._pytree"]),
        ("torch._check(x)", ["torch._check"]),
        ("op._schema.arguments", ["op._schema"]),
        ("torch.ops.aten._to_copy.default; torch.float8_e4m3fn", []),
    ],
)
def test_private_names_are_found(source, found):
    assert list(private_names(source)) == found


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(ROOT.parent)))
def test_module_uses_no_private_torch_names(path):
    assert list(private_names(path.read_text())) == []
