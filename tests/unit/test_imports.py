"""Every module can be imported first, and an import error reaches the user."""

import os
import re
import subprocess
import sys
from pathlib import Path

import grimp
import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def python(*arguments):
    command = [sys.executable, *arguments]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(command, capture_output=True, text=True, env=environment, check=False)


def test_every_module_can_be_imported_first():
    done = python(str(HERE / "first_imports.py"))
    assert done.returncode == 0, done.stdout + done.stderr
    count = int(re.match(r"\d+", done.stdout)[0])
    assert count > 200


def _cycles(graph):
    """Return the sets of modules that import one another, directly or indirectly."""
    reached = {module: graph.find_upstream_modules(module) for module in graph.modules}
    return {
        frozenset({module, *(m for m in above if module in reached[m])})
        for module, above in reached.items()
        if any(module in reached[m] for m in above)
    }


def test_no_import_cycles():
    # Imports inside functions and under TYPE_CHECKING count too.
    graph = grimp.build_graph("coreai_torch", exclude_type_checking_imports=False, cache_dir=None)
    assert len(graph.modules) > 200
    assert sorted(map(sorted, _cycles(graph))) == []


def test_importing_the_package_does_not_import_torch():
    code = "import sys, coreai_torch; sys.exit('torch' in sys.modules)"
    assert python("-c", code).returncode == 0


def test_importing_the_package_imports_no_extra():
    extras = ("cli", "fleet", "llm", "integrations")
    code = "import torch, coreai_torch; coreai_torch.convert; import sys; print(*sys.modules)"
    loaded = python("-c", code).stdout.split()
    assert "coreai_torch.api" in loaded
    assert not [m for m in loaded for one in extras if m.startswith(f"coreai_torch.{one}")]


def test_the_worker_of_the_runtime_starts_without_torch():
    """It starts twice for each conversion: in 0.2 s of processor time, and in 1.1 s with torch."""
    code = "import sys, coreai_torch.asset.worker; sys.exit('torch' in sys.modules)"
    assert python("-c", code).returncode == 0


@pytest.mark.parametrize("module", ["llm", "fleet", "compression", "cli.app"])
def test_large_libraries_are_imported_on_use(module):
    libraries = "{'transformers', 'torchao', 'dask', 'pyarrow', 'duckdb', 'yaml'}"
    code = f"import sys, coreai_torch.{module}; print(*{libraries} & set(sys.modules))"
    assert python("-c", code).stdout.split() == []


@pytest.mark.parametrize("argv0", ["coreai-torch", "train.py"])
def test_compression_ops_are_registered_once_torch_is_imported(argv0):
    code = (
        f"import sys; sys.argv = [{argv0!r}]; import coreai_torch, torch;"
        "print(torch.ops.coreai.unpack_bits.default, torch.__spec__.loader)"
    )
    done = python("-c", code)
    assert done.stdout.startswith("coreai.unpack_bits.default"), done.stderr
    assert "SourceFileLoader" in done.stdout  # torch keeps its own loader


def test_compression_ops_are_registered_if_torch_was_imported_before():
    code = "import torch, coreai_torch; print(torch.ops.coreai.unpack_bits.default)"
    assert python("-c", code).stdout.strip() == "coreai.unpack_bits.default"


def test_error_while_importing_a_subpackage_reaches_the_user():
    # A module that raises AttributeError, as torch does for an op that it does not have.
    code = (
        "import sys, types\n"
        "class Finder:\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name == 'coreai_torch.ops':\n"
        "            raise AttributeError('no op aten::gone')\n"
        "import coreai_torch\n"
        "sys.meta_path.insert(0, Finder())\n"
        "from coreai_torch import TorchConverter\n"
    )
    done = python("-c", code)
    assert done.returncode != 0
    assert "no op aten::gone" in done.stderr.strip().splitlines()[-1]
    assert "already has a lowering" not in done.stderr
