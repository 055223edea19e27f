"""Import every module as the first one of a process, and print those that fail.

A process that has imported all other libraries is forked for each module, so that a module costs
milliseconds.
"""

import compileall
import gc
import os
import subprocess
import sys
import traceback
from contextlib import suppress
from importlib import import_module
from pathlib import Path

import coreai.authoring
import coreai.runtime  # noqa: F401
import torch  # noqa: F401

SMALL = {"coreai", "torch", "numpy", "rich", "typer", "sympy"}
# A fork copies the page tables of these, so they are imported for the packages that use them only.
LARGE = {"transformers", "tokenizers", "safetensors", "dask", "distributed", "pyarrow", "yaml"}
USERS = ("coreai_torch.llm.", "coreai_torch.fleet.", "coreai_torch.integrations.")
ROOT = Path(__file__).parents[2] / "coreai_torch"


def modules() -> list[str]:
    return sorted(_name(path) for path in ROOT.rglob("*.py") if path.stem != "__main__")


def _name(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def fails(module: str) -> bool:
    child = os.fork()
    if child == 0:
        gc.disable()
        try:
            import_module(module)
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    return os.waitpid(child, 0)[1] != 0


def imported(names: list[str]) -> list[str]:
    """Return the names of all modules that are imported with these."""
    code = (
        f"import sys, importlib; [importlib.import_module(n) for n in {names}]; print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, check=False
    )
    return done.stdout.split()


def import_all(names: list[str], libraries: set[str]) -> None:
    """Import the modules of some libraries."""
    for name in names:
        if name.split(".")[0] in libraries:
            with suppress(ImportError, AttributeError):  # some exist only inside another module
                import_module(name)
    assert "coreai_torch" not in sys.modules
    gc.freeze()


if __name__ == "__main__":
    names = modules()
    compileall.compile_dir(ROOT, quiet=1)
    needed = imported(names)
    import_all(needed, SMALL)
    failed = [name for name in names if not name.startswith(USERS) and fails(name)]
    import_all(needed, LARGE)
    failed += [name for name in names if name.startswith(USERS) and fails(name)]
    print(f"{len(names)} modules, {len(failed)} failed: {failed}")  # noqa: T201
    sys.exit(bool(failed))
