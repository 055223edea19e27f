"""Measure one converter on one workload in this process; print the figures as JSON.

Run it as a script, so that its environment decides which `coreai_torch` is imported.
"""

import argparse
import atexit
import importlib
import json
import time
import warnings
from pathlib import Path

import converters
from stages import Stages, resident_bytes

# A runtime thread may use the interpreter while it shuts down, which aborts the process.
atexit.register(time.sleep, 0.3)

# Import these before the model is created, to separate their memory from the model's.
COREAI = ("coreai_torch", "coreai.authoring", "transformers.models.bert")
LIBRARIES = dict.fromkeys(("ours", "memory", "ours_debug", "published"), COREAI)


def measured(converter, workload, repeats, keep):
    import torch  # after the clock of a caller that measures imports
    import workloads

    for library in LIBRARIES.get(converter, ()):
        importlib.import_module(library)
    torch.set_num_threads(2)
    libraries, stages = resident_bytes(), Stages()
    with stages.timed("export"):
        program, args = workloads.exported(workload)
    weights = workloads.weight_bytes(program)
    with torch.no_grad():
        found = converters.ALL[converter](program, args, stages, repeats, keep)
    return {
        "nodes": len(program.graph.nodes),
        "weights": weights,
        "libraries": libraries,
        "wall": stages.wall,
        "cpu": stages.cpu,
        **found,
    }


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("converter", choices=converters.ALL)
    parser.add_argument("workload")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--keep", type=Path, help="a folder for the asset and the inputs")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    figures = measured(given.converter, given.workload, given.repeats, given.keep)
    print("\n" + json.dumps(figures))


main()
