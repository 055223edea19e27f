"""Export one model of the zoo through `transformers.exporters`, in a child of a fleet run.

A unit is a part of a model in one mode: its forward, the steps of its generation with a static
cache (`prefill`, `decode`, `image_encoder`, ...), or its forward with dynamic sizes.
"""

from __future__ import annotations

import copy
import sys
import time
import traceback
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[1] / "models"))
sys.path.append(str(Path(__file__).parents[1]))

TOLERANCE = 1e-4  # relative to the largest value of an output, as for the zoo
_LENGTH = 32  # of static caches


def judge(task: Any) -> dict[str, Any]:
    """Return the columns of a fleet row, with the verdicts on all units of the model."""
    units = judged(task.model, task.config["mode"])
    wrong = [unit for unit in units if unit["verdict"] != "right"]
    return {
        "verdict": "fail" if wrong else "pass",
        "cause": wrong[0]["reason"][:200] if wrong else "",
        "message": wrong[0]["trace"] if wrong else "",
        "units": units,
    }


def judged(name: str, mode: str) -> list[dict[str, Any]]:
    """Return the verdict on each unit of a model in a mode."""
    import torch
    import zoo
    from zoo.judge import _add_noise, _make_inputs

    torch.set_num_threads(1)
    torch.manual_seed(0)
    row = zoo.ROWS[name]
    model = row.build().eval()
    _add_noise(model, row.gain)
    given = {**_make_inputs(row.inputs, torch.float32), **row.flags}
    units: list[dict[str, Any]] = []
    if mode != "generate":
        return [_unit("model", lambda: _export(model, given, mode), units)]
    if not getattr(model, "can_generate", bool)():  # wrapped models have no such method
        return []
    _generation(model, row, given, units)
    return units


def _generation(model: Any, row: Any, given: dict[str, Any], units: list[dict[str, Any]]) -> None:
    import torch
    from transformers import GenerationConfig
    from transformers.exporters.utils import decompose_for_generation

    tokens = {n: v for n, v in given.items() if isinstance(v, torch.Tensor)}
    tokens.pop("decoder_input_ids", None)
    options = {"max_cache_len": _LENGTH, "do_sample": False, "pad_token_id": 0}
    for static in (True, False):
        implementation = {"cache_implementation": "static"} if static else {}
        config = GenerationConfig(**options, **implementation)
        try:
            parts = decompose_for_generation(model, tokens, generation_config=config)
        except Exception as error:
            trace, reason = traceback.format_exc(), f"generate: {error.__cause__ or error}"
            continue
        for part, (module, inputs) in parts.items():
            _unit(part, lambda m=module, i=inputs: _export(m, i, "forward"), units)
        return
    units.append(_verdict("generate", "not generated", reason, trace))


def _unit(part: str, run: Any, units: list[dict[str, Any]]) -> dict[str, Any]:
    from coreai_torch.errors import CodedError

    start = time.process_time()
    try:
        run()
        unit = _verdict(part, "right")
    except AssertionError as error:
        unit = _verdict(part, "wrong", str(error), traceback.format_exc())
    except CodedError as error:
        unit = _verdict(part, "refused", str(error), traceback.format_exc())
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        unit = _verdict(part, "not exported", reason, traceback.format_exc())
    unit["seconds"] = round(time.process_time() - start, 1)
    units.append(unit)
    return unit


def _verdict(part: str, verdict: str, reason: str = "", trace: str = "") -> dict[str, Any]:
    first = next(iter(reason.splitlines()), "")
    return {"part": part, "verdict": verdict, "reason": first[:300], "trace": trace[-6000:]}


def _export(model: Any, inputs: dict[str, Any], mode: str) -> None:
    """Export a module, call the program and compare the results with eager PyTorch."""
    import torch

    from coreai_torch.errors import NativeError
    from coreai_torch.integrations.transformers import CoreAIConfig, CoreAIExporter

    given = copy.deepcopy(inputs)
    with torch.no_grad():
        want = model(**copy.deepcopy(given))
    config = CoreAIConfig(dynamic=mode == "dynamic", verify=False)
    exported = CoreAIExporter().export(model, given, config)
    call = {n: v for n, v in copy.deepcopy(given).items() if v is not None}
    try:
        compare(exported(**call), want)
    except NativeError as error:
        _check_in_torch(model, copy.deepcopy(inputs), call)
        raise error
    except AssertionError as error:
        if "integers differ" not in str(error) or not _is_tie(model, copy.deepcopy(inputs)):
            raise
    other = longer(inputs) if mode == "dynamic" else None
    if other is not None:
        with torch.no_grad():
            want = model(**copy.deepcopy(other))
        compare(exported(**other), want)


def _check_in_torch(model: Any, inputs: dict[str, Any], call: dict[str, Any]) -> None:
    """Raise if the program that transformers exports fails in torch too: git reads past a mask."""
    from transformers.exporters import DynamoConfig, DynamoExporter

    exported = DynamoExporter().export(model, inputs, DynamoConfig())
    try:
        exported(**copy.deepcopy(call))
    except Exception as error:
        raise RuntimeError(f"the exported program fails in torch: {error}") from error


def _is_tie(model: Any, inputs: dict[str, Any]) -> bool:
    """Return whether the verification finds equal scores behind other integers."""
    from coreai_torch.integrations.transformers import CoreAIConfig, CoreAIExporter

    program = CoreAIExporter().export(model, inputs, CoreAIConfig()).program
    return any(error.ties for trial in program.verdict.trials for error in trial.outputs)


def longer(inputs: dict[str, Any]) -> dict[str, Any] | None:
    """Return inputs with three more tokens, if all are tokens or masks `[batch, length]`."""
    import torch

    tensors = {n: v for n, v in inputs.items() if isinstance(v, torch.Tensor)}
    sizes = {tuple(value.shape) for value in tensors.values()}
    whole = all(not value.is_floating_point() for value in tensors.values())
    if len(sizes) != 1 or len(next(iter(sizes))) != 2 or not whole:
        return None
    return {**inputs, **{n: torch.cat([v, v[:, :3]], 1) for n, v in tensors.items()}}


def compare(got: Any, want: Any) -> None:
    """Raise an AssertionError unless two results have the same structure and numbers."""
    import torch

    from coreai_torch.integrations.transformers.structure import named_tensors

    results, expected = named_tensors(got), named_tensors(want)
    missing = [name for name in expected if name not in results]
    assert not missing, f"{missing} are missing in {list(results)}"
    for name, other in expected.items():
        value = results[name]
        assert value.shape == other.shape, f"{name} is {[*value.shape]}, not {[*other.shape]}"
        assert value.dtype == other.dtype, f"{name} is {value.dtype}, not {other.dtype}"
        if not other.is_floating_point():
            assert torch.equal(value, other), f"{name}: integers differ"
            continue
        finite = other.isfinite()
        assert torch.equal(value.isfinite(), finite), f"{name}: other elements are finite"
        scale = other[finite].abs().max().item() if finite.any() else 1.0
        error = (value - other)[finite].abs().max().item() / (scale or 1.0) if finite.any() else 0.0
        assert error <= TOLERANCE, f"{name}: differs by {error:.2g} of the largest value"


if __name__ == "__main__":
    for found in judged(sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "forward"):
        sys.stdout.write(f"{found['part']}: {found['verdict']} {found['reason']}\n")
        sys.stdout.write(found["trace"] if found["verdict"] != "right" else "")
