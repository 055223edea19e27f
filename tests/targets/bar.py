# ruff: noqa: T201  a command prints
"""Regions of models in float16 for the neural engine: `python -m tests.targets.bar [NAME...]`.

Prints a line for each model; `--record` writes bar.json, which docs/placement.md shows.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
sys.path[:0] = [str(_TESTS), str(_TESTS / "models")]
STORED = Path(__file__).parent / "bar.json"

# What a row of the benchmark of forms, or of the zoo, stands for.
MODELS = {
    "MobileNetV3-Large": "classifier",
    "EfficientNet-B0": "classifier",
    "vit": "vision transformer",
    "LR-ASPP": "segmenter",
    "segformer": "segmenter",
    "depth_anything": "depth",
    "dpt": "depth",
    "Whisper encoder": "audio encoder",
}


def measured(name: str) -> dict[str, Any]:
    """Convert a model, and return its regions and why ops leave the neural engine."""
    import coreai_torch
    from benchmarks.forms.models import PROGRAMS
    from coreai_torch.targets import placement

    (made,) = (program for program in PROGRAMS if program.name == name)
    model, inputs = made.make()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = coreai_torch.convert(
            model.eval(),
            inputs,
            precision="float16",
            half_ports=True,
            target="neural_engine",
            verify=False,
        )
    found = placement(program)
    assert program.regions is not None
    leaving = [op for op in found.ops if op.rules]
    return {
        "before": program.regions.before,
        "after": program.regions.after,
        "optimized": found.regions,
        "reasons": sorted({f"{op.name}: {op.rules[0].reason}" for op in leaving}),
    }


def lines() -> list[str]:
    """Return the table of the stored figures."""
    rows = json.loads(STORED.read_text())
    heads = ("model", "kind", "regions as lowered", "with rewrites", "ops elsewhere")
    table = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name, kind in MODELS.items():
        row = rows[name]
        cells = (name, kind, row["before"], row["optimized"], "; ".join(row["reasons"]))
        table.append(f"| {' | '.join(map(str, cells))} |")
    return table


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.targets.bar", description=__doc__)
    parser.add_argument("name", nargs="*", help="a model; all by default")
    parser.add_argument("--record", action="store_true", help="write bar.json")
    options = parser.parse_args()
    rows = json.loads(STORED.read_text()) if STORED.exists() else {}
    for name in options.name or MODELS:
        rows[name] = measured(name)
        print(name, json.dumps(rows[name]), flush=True)
        if options.record:
            STORED.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
