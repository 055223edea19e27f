"""Import optional libraries when a test runs, not when pytest collects it.

`llama = lazy_import("transformers.models.llama.modeling_llama")` at the top of a test module stands
for `import ... as llama`, and a second argument for `from ... import name`. Before each test the
conftest calls `resolve`, which replaces these globals by what they stand for. A missing library
skips the tests that need it; a library that cannot be imported fails them.
"""

from __future__ import annotations

import importlib
import importlib.util
from typing import Any

import pytest


class _Lazy:
    def __init__(self, module: str, name: str | None) -> None:
        self._module, self._name = module, name

    def _load(self) -> Any:
        library = self._module.partition(".")[0]
        if not installed(library):
            pytest.skip(f"{library} is not installed")
        module = importlib.import_module(self._module)
        return module if self._name is None else getattr(module, self._name)


def lazy_import(module: str, name: str | None = None) -> Any:
    """Return a stand-in for `import module`, or for `from module import name`."""
    return _Lazy(module, name)


def installed(library: str) -> bool:
    """Return whether a library can be found; a blocked one raises or is None in `sys.modules`."""
    try:
        return importlib.util.find_spec(library) is not None
    except (ImportError, ValueError):
        return False


def resolve(namespace: dict[str, Any]) -> None:
    """Replace every stand-in among the globals of a module by what it stands for."""
    for key, value in list(namespace.items()):
        if isinstance(value, _Lazy):
            namespace[key] = value._load()
