"""Check programs on the units of this machine, and write one file about it."""

from __future__ import annotations

import json
import platform
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeAlias

import torch

from ..api import convert
from ..debugging.compute_plan import ComputePlan
from ..errors import ConversionError
from ..interpreter import to_torch
from ..numerics.arrays import array, tensor
from ..numerics.compare import max_error, norm_ratio, widen
from ..targets import placement
from ..targets.placing.confusion import described
from .cases import Case
from .units import KINDS, Ran, run, units

KIT = "coreai-torch device kit"
_VERSION = 1
_WRONG = 0.02  # relative error, in the norm, of an output in half precision
PlanOf: TypeAlias = "Callable[[str, str], ComputePlan | None]"  # of a program on a unit


@dataclass(frozen=True)
class Kit:
    """The results as plain data."""

    data: Mapping[str, Any]

    @classmethod
    def read(cls, path: Path | str) -> Kit:
        """Return the kit that `write` wrote."""
        try:
            data = json.loads(Path(path).read_text(encoding="utf-8"))
        except (OSError, ValueError) as cause:
            raise ConversionError(f"{path} is not a kit: {cause}") from cause
        if not isinstance(data, dict) or data.get("format") != KIT:
            raise ConversionError(
                f"{path} is not a kit\n  try   pass the file that coreai-torch device-check wrote"
            )
        if data.get("version") != _VERSION:
            raise ConversionError(
                f"{path} is a kit of version {data.get('version')}, this package reads {_VERSION}"
            )
        return cls(data)

    def write(self, path: Path | str) -> None:
        """Write the kit as JSON."""
        Path(path).write_text(json.dumps(self.data, indent=1), encoding="utf-8")

    @property
    def programs(self) -> Sequence[Mapping[str, Any]]:
        """One entry for each form of each model."""
        found: Sequence[Mapping[str, Any]] = self.data["programs"]
        return found


@dataclass(frozen=True)
class _Form:
    """A program to run, with inputs and reference outputs."""

    name: str
    code: str
    form: str  # "plain", "rewritten", "alternative" or "asset"
    asset: Path
    inputs: Mapping[str, torch.Tensor]
    want: Mapping[str, torch.Tensor]


def check(
    cases: Iterable[Case] = (),
    assets: Iterable[Path] = (),
    *,
    runs: int = 20,
    plan_of: PlanOf = lambda name, unit: None,
    note: Callable[[str], object] = lambda line: None,
) -> Kit:
    """Run cases and assets on each unit of this machine, and return the kit.

    The reference outputs of a case are those of the model in eager PyTorch, those of an asset come
    from `to_torch`. `plan_of(name, unit)` returns a compute plan that was recorded; `note` gets a
    line for each result. A program that crashes is recorded as such.
    """
    rows: list[dict[str, Any]] = []
    skipped: dict[str, str] = {}
    with tempfile.TemporaryDirectory(prefix="coreai-torch-") as folder:
        for case in cases:
            try:
                forms = list(_forms(case, Path(folder)))
            except Exception as error:
                skipped[case.name] = f"{type(error).__name__}: {error}".splitlines()[0]
                note(f"{case.name}: skipped, {skipped[case.name]}")
                continue
            rows += [_checked(form, runs, plan_of, note) for form in forms]
        rows += [_checked(_of_asset(path), runs, plan_of, note) for path in assets]
    return Kit(
        {
            "format": KIT,
            "version": _VERSION,
            "machine": _machine(),
            "units": list(units()),
            "programs": rows,
            "skipped": skipped,
        }
    )


def _forms(case: Case, folder: Path) -> Iterator[_Form]:
    """Convert a case as it is, with the rewrites for the neural engine, and in its other form."""
    yield _converted(case, "plain", folder)[0]
    rewritten, count = _converted(case, "rewritten", folder)
    if count:
        yield rewritten
    if case.alternative is not None:
        yield _converted(case, "alternative", folder)[0]


def _converted(case: Case, form: str, folder: Path) -> tuple[_Form, int]:
    """Return a form of a case, and the number of rewrites."""
    build = case.alternative if form == "alternative" and case.alternative else case.build
    model, inputs = build()
    model = model.eval()
    target = "neural_engine" if form == "rewritten" else None
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        want = model(*(x.clone() for x in inputs))
        program = convert(model, inputs, verify=False, target=target)
    asset = folder / f"{case.name.replace(' ', '_')}.{form}.aimodel"
    program.save_asset(asset)
    function = to_torch(asset).functions["main"]
    named = dict(zip(function.inputs, inputs, strict=True))
    wanted = dict(zip(function.outputs, want if isinstance(want, tuple) else [want], strict=True))
    return _Form(case.name, case.code, form, asset, named, wanted), len(program.rewrites)


def _of_asset(path: Path) -> _Form:
    """Return an asset with random inputs."""
    from ..verification.timing import drawn

    module = to_torch(path)
    function = module.functions["main"]
    if function.states:
        raise ConversionError(f"{path} has states\n  try   pass an asset without states")
    inputs = {n: tensor(drawn(t, t.shape)) for n, t in function.inputs.items()}
    return _Form(path.name, "", "asset", path, inputs, module(inputs))


def _checked(
    form: _Form, runs: int, plan_of: PlanOf, note: Callable[[str], object]
) -> dict[str, Any]:
    """Run a form on each unit, and return its row."""
    results = []
    for unit in units():
        ran = run(form.asset, unit, {n: array(x) for n, x in form.inputs.items()}, runs)
        plan = plan_of(f"{form.name}.{form.form}", unit)
        result = {"unit": unit, **_judged(form, ran), "plan": plan and plan.to_dict()}
        results.append(result)
        detail = result["error"].splitlines()[:1] or [f"{ran.median_ms:.3f} ms"]
        note(f"{form.name} ({form.form}) on {unit}: {result['status']}, {detail[0]}")
    estimates = {target: placement(form.asset, target) for target in KINDS[1:]}
    return {
        "name": form.name,
        "code": form.code,
        "form": form.form,
        "estimate": {
            target: {"regions": found.regions, "ops": described(found.ops)}
            for target, found in estimates.items()
        },
        "results": results,
    }


def _judged(form: _Form, ran: Ran) -> dict[str, Any]:
    """Return the status of a run: ok, wrong, failed or crashed."""
    if ran.error:
        return {"status": "crashed" if ran.crashed else "failed", "error": ran.error}
    outputs = {name: _compared(tensor(ran.outputs[name]), want) for name, want in form.want.items()}
    wrong = any(row["relative_error"] is None or row["relative_error"] > _WRONG
                for row in outputs.values())  # fmt: skip
    return {
        "status": "wrong" if wrong else "ok",
        "error": "",
        "load_s": round(ran.load_s, 4),
        "median_ms": round(ran.median_ms, 4),
        "outputs": outputs,
    }


def _compared(got: torch.Tensor, want: torch.Tensor) -> dict[str, float | None]:
    """Return the errors of an output; None if they are not finite."""
    if got.shape != want.shape:
        return {"relative_error": None, "max_error": None, "norm_ratio": None}
    apart = float((widen(got) - widen(want)).abs().square().sum().sqrt())
    size = float(widen(want).abs().square().sum().sqrt())
    figures = {
        "relative_error": apart / size if size else float(apart > 0),
        "max_error": max_error(got, want),
        "norm_ratio": norm_ratio(got, want),
    }
    return {n: x if x is not None and abs(x) < float("inf") else None for n, x in figures.items()}


def _machine() -> dict[str, str]:
    """Return the machine and the versions, without names of users or hosts."""
    packages = ("coreai-torch", "coreai-core", "torch")
    found = {name: _version(name) for name in packages}
    mac = platform.mac_ver()[0]
    return {
        "system": f"macOS {mac}" if mac else platform.system(),
        "machine": platform.machine(),
        "processor": platform.processor(),
        "python": platform.python_version(),
        **found,
    }


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""
