"""Convert exported programs with the `coreai_torch` of this environment; save each as an asset.

Reads lines of two paths, an exported program and the asset to write, and prints a line of JSON for
each. Instead of the first path, a line may have the name and dtype of a call, which is exported
here: some calls cannot be stored. A fork converts, so that a crash affects one program.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import sys
import time
import warnings
from pathlib import Path
from typing import Any

# A runtime thread may use the interpreter while it shuts down, which aborts the process.
atexit.register(time.sleep, 0.3)
SECONDS = 400  # of processor time


def attempt(source: str, asset: str) -> str:
    """Return why there is no asset, or nothing."""
    import torch

    import coreai_torch

    try:
        with torch.no_grad():
            program = _exported(source)
            program = program.run_decompositions(coreai_torch.get_decomp_table())
        converter = coreai_torch.TorchConverter().add_exported_program(program)
        converter.to_coreai().save_asset(Path(asset))
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:200]
    return ""


def _exported(source: str) -> Any:
    """Return the stored program, or the call that a name and a dtype describe."""
    import torch

    if source.endswith(".pt2"):
        return torch.export.load(source)
    # The package of this file without its parent: beside that lies a `coreai_torch`, which would
    # hide the published one.
    sys.path.append(str(Path(__file__).parents[1]))
    from forms.programs import PROGRAMS

    name, _, dtype = source.rpartition(" ")
    module, args = PROGRAMS[name].made(getattr(torch, dtype))
    return torch.export.export(module, args)


def warm_up() -> None:
    """Import the libraries and export once, so that a fork does not: that takes 3 s."""
    import coreai.authoring  # noqa: F401
    import torch

    import coreai_torch

    torch.set_num_threads(1)
    function = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.GELU())
    with torch.no_grad():
        program = torch.export.export(function, (torch.randn(3, 2),))
        program.run_decompositions(coreai_torch.get_decomp_table())


def main() -> None:
    warnings.simplefilter("ignore")
    warm_up()
    for line in sys.stdin:
        child = os.fork()
        if not child:
            signal.setitimer(signal.ITIMER_PROF, SECONDS)
            print(
                "\n" + json.dumps({"problem": attempt(*line.rstrip("\n").split("\t"))}), flush=True
            )
            time.sleep(0.3)
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            problem = f"ended with {os.waitstatus_to_exitcode(status)}"
            print("\n" + json.dumps({"problem": problem}), flush=True)


main()
