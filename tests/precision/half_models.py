"""Measure half precision on whole models: `make precision`.

`python tests/precision/half_models.py [names]` measures some of them. Each model has random weights
from a small configuration, and is measured as it is and with scaled weights, so that float16
overflows. The rows are stored with the commit and the versions that they were measured with, and
printed into `docs/precision.md`.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

_TESTS = Path(__file__).parents[1]
for _folder in (_TESTS, _TESTS / "models", _TESTS / "precision"):
    if str(_folder) not in sys.path:
        sys.path.insert(0, str(_folder))

from zoo.row import Row, normal  # noqa: E402
from zoo.transformers_rows import hf  # noqa: E402

KEPT = _TESTS / "precision" / "half_models.json"
PAGE = _TESTS.parent / "docs" / "precision.md"
_BEGIN, _END = "<!-- models: begin -->\n", "<!-- models: end -->\n"
DTYPES = ("float16", "bfloat16")
MOST_IN_FLOAT32 = 0.05  # of the multiply-adds of a model with ordinary weights


@dataclass(frozen=True)
class Model:
    """A model, and the factors of weights, by name, with which float16 overflows."""

    title: str
    row: str
    scaled: Mapping[str, float]


_RF_DETR = {
    "backbone_config": {
        "model_type": "rf_detr_dinov2",
        "image_size": 64,
        "patch_size": 8,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "intermediate_size": 64,
        "out_indices": [1, 2],
        "window_block_indices": [0],
    },
    "d_model": 32,
    "decoder_ffn_dim": 64,
    "decoder_layers": 2,
    "decoder_self_attention_heads": 4,
    "decoder_cross_attention_heads": 4,
    "decoder_n_points": 2,
    "num_queries": 12,
    "group_detr": 1,
    "num_labels": 5,
    "c2f_num_blocks": 1,
}


def _detector() -> Any:
    from detector import Detector

    return Detector()


OWN = {
    row.name: row
    for row in (
        Row("detector", "tests", "detection", _detector, {"images": normal(1, 3, 64, 64)}),
        hf(
            "rf_detr",
            "RfDetrForObjectDetection",
            "detection",
            _RF_DETR,
            {"pixel_values": normal(1, 3, 64, 64)},
        ),
    )
}

# Weights after which a norm follows: the values overflow, and the result does not. A batch norm
# in evaluation divides by a stored variance.
MODELS = {
    model.row: model
    for model in (
        Model("T5", "t5", {"*.DenseReluDense.wo.weight": 1e6}),
        Model("Gemma 3", "gemma3", {"*.post_feedforward_layernorm.weight": 3e6}),
        Model(
            "Stable Diffusion VAE",
            "diffusers_autoencoder_kl",
            {"decoder.up_blocks.0.resnets.0.conv2.weight": 1e6},
        ),
        Model("Stable Diffusion UNet", "diffusers_unet2d_condition", {"*.ff.net.2.weight": 1e6}),
        Model(
            "MobileNetV3",
            "timm_mobilenetv3_small_050",
            {"blocks.3.0.conv_pw.weight": 1e6, "blocks.3.0.bn1.running_var": 1e12},
        ),
        Model("Whisper", "whisper", {"*.fc2.weight": 1e6}),
        Model("RF-DETR", "rf_detr", {"*.mlp.fc2.weight": 1e6}),
        Model(
            "YOLO-like",
            "detector",
            {"coarse.0.inner.0.0.weight": 1e6, "coarse.0.inner.0.1.running_var": 1e12},
        ),
    )
}


class Measured:
    """One exported model, with ordinary or scaled weights."""

    def __init__(self, name: str) -> None:
        import torch
        import zoo
        from zoo import judge

        self.model, self._torch = MODELS[name], torch
        self._row = OWN.get(name) or zoo.ROWS[name]
        torch.manual_seed(0)
        module = self._row.build().eval()
        judge._add_noise(module, self._row.gain)
        self._given = judge._make_inputs
        self._program = judge._exported(self._row, module, self._inputs(0))

    def _inputs(self, seed: int) -> dict[str, Any]:
        self._torch.manual_seed(seed)
        return self._given(self._row.inputs, self._torch.float32)

    def _leaves(self, seed: int) -> list[Any]:
        return [*self._inputs(seed).values(), *self._row.flags.values()]

    def program(self, *, scaled: bool) -> Any:
        """Return the exported program, with scaled weights if asked."""
        from coreai_torch.fx.programs import with_graph

        if not scaled:
            return self._program
        weights, found = {}, set()
        for name, tensor in self._program.state_dict.items():
            for pattern, factor in self.model.scaled.items():
                if fnmatchcase(name, pattern):
                    scaled_ = tensor.detach() * factor
                    is_parameter = isinstance(tensor, self._torch.nn.Parameter)
                    weights[name] = self._torch.nn.Parameter(scaled_) if is_parameter else scaled_
                    found.add(pattern)
        missing = set(self.model.scaled) - found
        assert not missing, f"{missing} match none of {list(self._program.state_dict)}"
        return with_graph(self._program, self._program.graph_module, weights=weights)

    def measure(self, dtype: str, *, scaled: bool) -> dict[str, Any]:
        """Return the row of the model: islands are found on two inputs and tried on a third."""
        from coreai_torch.precision import to_half

        program = self.program(scaled=scaled)
        half, report = to_half(program, [self._leaves(0), self._leaves(1)], dtype)
        return {
            "model": self.model.title,
            "dtype": dtype,
            "scaled": scaled,
            "islands": len(report.islands),
            "float32_share": report.float32_share,
            "error_before": _number(report.error_before),
            "error_after": _number(report.error_after),
            "error_converted": _number(self._error_converted(program, half)),
            "limit": report.limit,
        }

    def _error_converted(self, program: Any, half: Any) -> float:
        """Return the error of the converted program on an input that was not measured."""
        from coreai_torch import TorchConverter, to_torch
        from coreai_torch.precision import running

        converted = TorchConverter().add_exported_program(half).to_coreai()
        module, inputs = to_torch(converted), self._inputs(2)
        names = module.function("main").inputs
        results = module({name: inputs[name] for name in names}).values()
        floats = tuple(value for value in results if value.is_floating_point())
        return running.error(running.run(program, self._leaves(2))["output"], floats)


def _number(value: float) -> float | str:
    return value if math.isfinite(value) else "inf"


def load() -> dict[str, Any]:
    """Return the stored rows, and the commit and versions of each run."""
    return json.loads(KEPT.read_text()) if KEPT.exists() else {"runs": [], "rows": []}


def _store(kept: dict[str, Any]) -> None:
    used = {row["commit"] for row in kept["rows"]}
    runs = {run["commit"]: run for run in kept["runs"] if run["commit"] in used}
    titles = [model.title for model in MODELS.values()]
    rows = sorted(kept["rows"], key=lambda row: (titles.index(row["model"]), row["scaled"]))
    stored = {"runs": list(runs.values()), "rows": rows}
    KEPT.write_text(json.dumps(stored, indent=1, allow_nan=False) + "\n")


def table() -> str:
    """Return the rows as a table."""
    lines = [
        "| model | weights | dtype | islands | float32 multiply-adds | error without | error with "
        "| error of the program |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in load()["rows"]:
        cells = [row["model"], "scaled" if row["scaled"] else "ordinary", row["dtype"]]
        if "failure" in row:
            lines.append(f"| {' | '.join(cells)} | {row['failure'].splitlines()[0]} | | | | |")
            continue
        cells += [str(row["islands"]), f"{row['float32_share'] or 0:.1%}"]
        errors = (row["error_before"], row["error_after"], row["error_converted"])
        cells += [error if isinstance(error, str) else f"{error:.1e}" for error in errors]
        lines.append(f"| {' | '.join(cells)} |")
    import provenance

    return "\n".join([*lines, "", *map(provenance.describe, load()["runs"]), ""])


def write_page() -> None:
    """Print the table into the page."""
    before, _, rest = PAGE.read_text().partition(_BEGIN)
    PAGE.write_text(before + _BEGIN + "\n" + table() + "\n" + _END + rest.partition(_END)[2])


def measured_lines(names: Sequence[str], commit: str) -> Iterator[dict[str, Any]]:
    """Yield one row after the other, with the versions; a failure is a row with an error."""
    import provenance

    run = provenance.current("transformers", "diffusers", "timm")
    run["commit"] = commit or run["commit"]
    for name in names:
        model = Measured(name)
        for scaled in (False, True):
            for dtype in DTYPES:
                row = {"model": MODELS[name].title, "dtype": dtype, "scaled": scaled}
                try:
                    row |= model.measure(dtype, scaled=scaled)
                except Exception as error:
                    row["failure"] = f"{type(error).__name__}: {error}"
                yield {"row": {**row, "commit": run["commit"]}, "run": run}


def merge(lines: Iterable[dict[str, Any]]) -> None:
    """Store measured rows in place of the earlier ones, and print the table."""
    kept = load()
    for line in lines:
        row, run = line["row"], line["run"]
        same = ("model", "dtype", "scaled")
        kept["rows"] = [r for r in kept["rows"] if any(r[key] != row[key] for key in same)]
        kept["rows"].append(row)
        kept["runs"] = [r for r in kept["runs"] if r["commit"] != run["commit"]] + [run]
    _store(kept)
    write_page()


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*MODELS, []])
    parser.add_argument("--commit", default="", help="of the measured source, without git")
    parser.add_argument("--lines", type=Path, help="append rows to this file, for --merge")
    parser.add_argument("--merge", type=Path, nargs="*", help="store the rows of these files")
    given = parser.parse_args(arguments)
    if given.merge:
        texts = [line for file in given.merge for line in file.read_text().splitlines()]
        merge(json.loads(text) for text in texts)
        return
    for line in measured_lines(given.names or list(MODELS), given.commit):
        text = json.dumps(line)
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()
        if given.lines:
            with given.lines.open("a") as file:
                file.write(f"{text}\n")
        else:
            merge([line])


if __name__ == "__main__":
    main(sys.argv[1:])
