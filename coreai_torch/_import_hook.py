"""Import a module of ours as soon as a library has been imported, without importing it now."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType


def after_import(library: str, module: str) -> None:
    """Import `module` now if `library` is imported already, otherwise right after it is."""
    if library in sys.modules:
        import_module(module)
    else:
        sys.meta_path.insert(0, _Finder(library, module))


class _Finder(MetaPathFinder):
    """Finds one library once, and has its loader import our module behind it."""

    def __init__(self, library: str, module: str) -> None:
        self._library, self._module = library, module

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name != self._library:
            return None
        sys.meta_path.remove(self)
        spec = find_spec(name)
        if spec is not None and spec.loader is not None:
            spec.loader = _Loader(spec.loader, self._module)
        return spec


class _Loader(Loader):
    """The library's own loader, followed by the import of our module."""

    def __init__(self, loader: Loader, module: str) -> None:
        self._loader, self._module = loader, module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        spec = module.__spec__
        if spec is not None:  # the library keeps its own loader, and no trace of this one
            spec.loader = module.__loader__ = self._loader
        self._loader.exec_module(module)
        import_module(self._module)
