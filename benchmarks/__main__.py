"""Run the benchmark: all workloads and peers, or those named on the command line."""

import argparse
import json
import os
import tempfile
from pathlib import Path

from benchmarks import bars, page
from benchmarks.environments import HOME, PEERS
from benchmarks.measure import import_seconds, latencies, measured
from tests.provenance import current

MODELS = ("bert", "vit", "resnet", "whisper", "decoder", "decoder_f16")
WORKLOADS = (*MODELS, "linears_500", "linears_1gb", "mapped_1gb", "linears_4gb")
CHAINS = ("chain_5000", "chain_10000", "chain_20000")
ALONE = {*CHAINS[1:], "mapped_1gb"}  # measured without peers
OTHERS = ("onnx", "coremltools", "openvino", "executorch")
# Processes and runs in each. The bundled runtime takes minutes or longer for the others.
RUN = {"bert": (6, 3), "vit": (6, 3), "resnet": (6, 3), "linears_500": (4, 3)}
RUN |= {"whisper": (2, 1), "decoder": (2, 1)}
RUNNABLE = ("ours", "published")
REPEATS = {"linears_4gb": 3, "decoder": 3, "decoder_f16": 3}
MEMORY = ("peak", "libraries", "anonymous")
SAVED = ("linears_1gb", "bert")
KEPT = Path(__file__).parent / "figures.json"  # workloads that are not run keep their figures


def _arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("workloads", nargs="*", default=[*WORKLOADS, *CHAINS])
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=[*PEERS])
    return parser.parse_args()


def _converters(workload, peers):
    """Return the converters to measure on a workload."""
    wanted = ["ours"] if workload in ALONE else ["ours", "published"]
    wanted += ["ours_debug"] if workload in ("bert", "chain_10000") else []
    wanted += ["native_save"] if workload in SAVED else []
    wanted += OTHERS if workload in MODELS[:4] else []
    return [name for name in wanted if name in peers]


def _figures(workload, peers, folder):
    found, kept = {}, {}
    for converter in _converters(workload, peers):
        print(f"{workload}: {converter}", flush=True)
        other = converter in OTHERS
        repeats = 1 if other else REPEATS.get(workload, 5)
        keep = folder / converter if workload in RUN and converter in RUNNABLE else None
        found[converter] = measured(converter, workload, repeats, keep)
        if keep and "problem" not in found[converter]:
            kept[converter] = keep
    for converter, seconds in latencies(kept, *RUN.get(workload, (0, 0))).items():
        found[converter]["wall"] |= seconds.wall
        found[converter]["cpu"] |= seconds.cpu
    if "problem" not in found["ours"]:  # measure memory in a run without repeats
        once = measured("memory", workload, repeats=1)
        found["ours"] |= {key: once[key] for key in MEMORY if key in once}
    found["ours"]["measured"] = current("transformers")
    return found


def main():
    given = _arguments()
    HOME.mkdir(parents=True, exist_ok=True)
    known = json.loads(KEPT.read_text()) if KEPT.exists() else {}
    figures = {name: known[name] for name in (*WORKLOADS, *CHAINS) if name in known}
    for workload in given.workloads:
        with tempfile.TemporaryDirectory() as folder:
            figures[workload] = _figures(workload, given.peers, Path(folder))
        KEPT.write_text(json.dumps(figures, indent=1) + "\n")
    seconds = {
        "ours": import_seconds("import torch, coreai.authoring, coreai_torch"),
        "without": import_seconds("import torch, coreai.authoring"),
    }
    page.show(figures, bars.every(figures, seconds), os.cpu_count())


main()
