"""Read a plan: models, grid, steps and limits, from YAML or JSON."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..errors import PlanError
from .checks import as_list, check_keys, flag, nearest, positive, text, without_repeats
from .options import checked_options
from .task import STEPS, Limits, Task, task_id

_PLAN = ("name", "models", "grid", "steps", "limits", "environments", "preload", "keep")
_MODEL = ("name", "source", "inputs", "checkpoint", "config", "grid", "limits")
_GRID = ("sizes", "precision", "scheme", "target", "environment", "seeds")
_PRECISIONS = ("float32", "float16", "bfloat16")
LIBRARIES = ("transformers", "timm", "torchvision")
_PLACEHOLDER = re.compile(r"\{(\w+)\}")


@dataclass(frozen=True)
class Grid:
    """The values that are combined with each model."""

    sizes: tuple[Mapping[str, int], ...] = ({},)
    precision: tuple[str, ...] = ("float32",)
    scheme: tuple[str, ...] = ("none",)
    target: tuple[str, ...] = ("none",)
    environment: tuple[str, ...] = ("none",)
    seeds: tuple[int, ...] = (0,)


@dataclass(frozen=True)
class Model:
    """A model of a plan."""

    name: str
    source: str
    inputs: tuple[str, ...] = ()
    checkpoint: str = ""
    config: Mapping[str, Any] = field(default_factory=dict)
    grid: Grid = field(default_factory=Grid)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True)
class Plan:
    """A valid plan."""

    name: str
    models: tuple[Model, ...]
    steps: Mapping[str, Mapping[str, Any]]
    folder: str = ""
    call: str = ""
    preload: tuple[str, ...] = ()
    environments: Mapping[str, str] = field(default_factory=dict)  # interpreters by name
    keep: bool = False

    def tasks(self) -> Iterator[Task]:
        """Yield every combination of a model and the grid."""
        for model in self.models:
            grid = model.grid
            for sizes, precision, scheme, target, named, seed in itertools.product(
                *(grid.sizes, grid.precision, grid.scheme, grid.target),
                *(grid.environment, grid.seeds),
            ):
                yield Task(
                    id=task_id(model.name, sizes, precision, scheme, target, named, seed=seed),
                    model=model.name,
                    source=model.source,
                    steps=self.steps,
                    inputs=_filled(model, sizes),
                    checkpoint=model.checkpoint,
                    config=model.config,
                    sizes=sizes,
                    precision=precision,
                    scheme=scheme,
                    target=target,
                    environment=named,
                    python=self.environments.get(named, ""),
                    seed=seed,
                    limits=model.limits,
                    folder=self.folder,
                    preload=self.preload,
                    call=self.call,
                )


def load_plan(path: Path | str) -> Plan:
    """Read and check the plan of a `.yaml` or `.json` file."""
    path = Path(path)
    if not path.is_file():
        raise PlanError(f"there is no plan {path}\n  try   pass the path of a YAML file")
    try:
        data = _parse_text(path)
    except (ValueError, OSError) as cause:
        raise PlanError(f"{path} cannot be read: {cause}\n  try   correct the file") from cause
    return parse_plan(data, folder=path.parent.absolute(), name=path.stem)


def _parse_text(path: Path) -> Any:
    if path.suffix == ".json":
        return json.loads(path.read_text(), object_pairs_hook=_unique_keys)
    try:
        import yaml
    except ImportError as cause:
        raise PlanError(
            "a YAML plan needs pyyaml, which is not installed\n"
            "  try   pip install coreai-torch[fleet], or write the plan as JSON"
        ) from cause

    class Loader(yaml.SafeLoader):  # type: ignore[misc, unused-ignore]
        """Rejects a repeated key, whose first value would be ignored."""

        def construct_mapping(self, node: Any, deep: bool = False) -> Any:
            names = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
            for place, name in enumerate(names):
                if name in names[:place] and name != "<<":
                    line = node.value[place][0].start_mark.line + 1
                    raise ValueError(f"line {line} repeats the key {name!r}")
            return super().construct_mapping(node, deep)

    try:
        with path.open() as file:
            return yaml.load(file, Loader)
    except (yaml.YAMLError, RecursionError) as cause:
        raise ValueError(" ".join(str(cause).split())) from cause


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in pairs:
        if name in found:
            raise ValueError(f"the key {name!r} is repeated")
        found[name] = value
    return found


def parse_plan(data: Any, *, folder: Path | str = "", name: str = "plan") -> Plan:
    """Check plain data and return the plan; relative paths start at `folder`."""
    check_keys(data, _PLAN, "the plan", required=("models", "steps"))
    steps, call = _steps(data["steps"])
    base = Path(folder or Path.cwd()).absolute()
    grid = _grid(data.get("grid", {}), Grid(), "grid")
    limits = _limits(data.get("limits", {}), Limits(), "limits")
    found: list[Model] = []
    entries = as_list(data["models"], "models")
    if not entries:
        raise PlanError("models is empty\n  try   list a model, as models.py:factory")
    for place, entry in enumerate(entries):
        found += _models(entry, f"models[{place}]", base, grid, limits, call)
    plan = Plan(
        name=text(data.get("name", name), "name"),
        models=tuple(found),
        steps=steps,
        folder=str(base),
        call=call,
        preload=tuple(text(m, "preload") for m in as_list(data.get("preload", []), "preload")),
        environments=_environments(data.get("environments", {}), base),
        keep=flag(data.get("keep", False), "keep"),
    )
    _check(plan)
    return plan


def _steps(given: Any) -> tuple[dict[str, dict[str, Any]], str]:
    """Return the options by step in the order they run, and the function that replaces them."""
    found: dict[str, dict[str, Any]] = {}
    for place, entry in enumerate(as_list(given, "steps")):
        where = f"steps[{place}]"
        pairs = entry if isinstance(entry, Mapping) else {str(entry): {}}
        for step, options in pairs.items():
            if step == "call":
                return {}, _call(options, where, alone=len(given) == 1)
            if step not in STEPS:
                raise PlanError(
                    f"{where}: unknown step {step!r}{nearest(str(step), STEPS)}\n"
                    f"  try   use some of {', '.join(STEPS)}"
                )
            if step in found:
                raise PlanError(f"{where}: the step {step} is listed twice\n  try   remove one")
            found[step] = checked_options(step, options, where)
    if not found:
        raise PlanError(f"steps is empty\n  try   use some of {', '.join(STEPS)}")
    return {step: found[step] for step in STEPS if step in found}, ""


def _call(function: Any, where: str, *, alone: bool) -> str:
    if not alone:
        raise PlanError(f"{where}: call cannot be combined with other steps\n  try   remove them")
    if not isinstance(function, str) or ":" not in function:
        raise PlanError(
            f"{where}: call is {function!r}\n  try   name a function, as package.module:function"
        )
    return function


def _grid(given: Any, default: Grid, where: str) -> Grid:
    check_keys(given, _GRID, where)
    found: dict[str, list[Any]] = {
        name: as_list(values, f"{where}.{name}") for name, values in given.items()
    }
    if "sizes" in found:
        found["sizes"] = [_sizes(sizes, where) for sizes in found["sizes"]]
    for seed in found.get("seeds", []):
        if not isinstance(seed, int) or isinstance(seed, bool) or seed < 0:
            raise PlanError(f"{where}.seeds has {seed!r}\n  try   list integers from 0, as [0, 1]")
    for name in ("precision", "scheme", "target", "environment"):
        if name in found:
            place = f"{where}.{name}"
            found[name] = ["none" if v is None else text(v, place) for v in found[name]]
    unique = {name: without_repeats(values, f"{where}.{name}") for name, values in found.items()}
    grid = replace(default, **unique)
    _check_values(grid, where)
    return grid


def _check_values(grid: Grid, where: str) -> None:
    for value in grid.precision:
        if value not in _PRECISIONS:
            raise PlanError(
                f"{where}.precision: unknown precision {value!r}{nearest(value, _PRECISIONS)}\n"
                f"  try   use some of {', '.join(_PRECISIONS)}"
            )
    if schemes := [value for value in grid.scheme if value != "none"]:
        from ..compression.scheme_names import KNOWN, scheme_named

        for value in schemes:
            if scheme_named(value) is None:
                raise PlanError(
                    f"{where}.scheme: unknown scheme {value!r}\n  try   use some of {KNOWN}"
                )
    if targets := [value for value in grid.target if value != "none"]:
        from ..targets.rewrites import TARGETS

        for value in targets:
            if value not in TARGETS:
                raise PlanError(
                    f"{where}.target: unknown target {value!r}{nearest(value, TARGETS)}\n"
                    f"  try   use some of none, {', '.join(TARGETS)}"
                )


def _environments(given: Any, base: Path) -> dict[str, str]:
    """Return the interpreters by the name of their environment."""
    if not isinstance(given, Mapping):
        raise PlanError(
            f"environments is {given!r}\n  try   give each interpreter a name, as "
            "{torch-2.15: envs/torch-2.15/bin/python}"
        )
    found = {}
    for name, path in given.items():
        # The path of a virtual environment's Python is a link, which must not be resolved.
        python = base / Path(text(path, f"environments.{name}")).expanduser()
        if not python.is_file():
            raise PlanError(
                f"environments.{name}: the file {path} does not exist\n  try   correct the path"
            )
        found[str(name)] = str(python)
    return found


def _sizes(given: Any, where: str) -> dict[str, int]:
    if not isinstance(given, Mapping):
        raise PlanError(
            f"{where}.sizes has {given!r}\n  try   give each size a name, as [{{batch: 1}}]"
        )
    return {str(n): int(positive(v, f"{where}.sizes.{n}", whole=True)) for n, v in given.items()}


def _limits(given: Any, default: Limits, where: str) -> Limits:
    check_keys(given, ("seconds", "memory"), where)
    return replace(default, **{n: positive(v, f"{where}.{n}") for n, v in given.items()})


def _models(
    entry: Any, where: str, base: Path, grid: Grid, limits: Limits, call: str
) -> list[Model]:
    """Return the models of one entry: several if it is a pattern of `.pt2` files."""
    given = entry if isinstance(entry, Mapping) else {"source": entry}
    check_keys(given, _MODEL, where, required=("source",))
    source = text(given["source"], f"{where}.source")
    config = given.get("config", {})
    if not isinstance(config, Mapping):
        raise PlanError(f"{where}.config is {config!r}\n  try   give keys with values")
    model = Model(
        name=text(given.get("name", source), f"{where}.name"),
        source=source,
        inputs=tuple(text(i, f"{where}.inputs") for i in as_list(given.get("inputs", []), where)),
        checkpoint=text(given.get("checkpoint", ""), f"{where}.checkpoint"),
        config=dict(config),
        grid=_grid(given.get("grid", {}), grid, f"{where}.grid"),
        limits=_limits(given.get("limits", {}), limits, f"{where}.limits"),
    )
    if call:
        return [model]
    _check_placeholders(model, where)
    if model.checkpoint and not (base / model.checkpoint).exists():
        raise PlanError(
            f"{where}: the checkpoint {model.checkpoint} does not exist\n  try   correct the path"
        )
    model = replace(model, grid=_used_part(model, given.get("grid", {}), where))
    if source.endswith(".pt2"):
        return _exported_programs(model, where, base)
    _check_source(model, where, base)
    return [model]


def _used_part(model: Model, own: Mapping[str, Any], where: str) -> Grid:
    """Return the grid without values that have no effect on the model.

    They would make several equal tasks, whose ids claim sizes and seeds that were not tested.
    """
    used = _placeholders(model)
    if unused := sorted({name for sizes in own.get("sizes", ()) for name in sizes} - used):
        raise PlanError(
            f"{where}.grid.sizes: no input uses {{{unused[0]}}}\n"
            f"  try   use it, as  inputs: ['x=f32[{{{unused[0]}}},3]'], or remove the size"
        )
    narrowed = ({n: v for n, v in sizes.items() if n in used} for sizes in model.grid.sizes)
    unique = {json.dumps(sizes, sort_keys=True): sizes for sizes in narrowed}
    grid = replace(model.grid, sizes=tuple(unique.values()))
    if not model.source.endswith(".pt2"):
        return grid
    if "seeds" in own or model.inputs or model.checkpoint:
        key = "grid.seeds" if "seeds" in own else "inputs" if model.inputs else "checkpoint"
        raise PlanError(
            f"{where}.{key}: a .pt2 file has its own inputs and weights\n  try   remove the key"
        )
    return replace(grid, seeds=(0,))


def _exported_programs(model: Model, where: str, base: Path) -> list[Model]:
    if not set("*?[") & set(model.source):
        files = [base / model.source]
        if not files[0].is_file():
            raise PlanError(
                f"{where}: the file {model.source} does not exist\n  try   correct the path"
            )
        return [model]
    files = sorted(base.glob(model.source))
    if not files:
        raise PlanError(f"{where}: no file matches {model.source}\n  try   correct the pattern")
    names = [str(file.relative_to(base)) for file in files]
    return [replace(model, name=name, source=name) for name in names]


def _check_source(model: Model, where: str, base: Path) -> None:
    path, found, _ = model.source.rpartition(":")
    if not found:
        raise PlanError(
            f"{where}: {model.source!r} does not name a model\n  try   use models.py:factory, "
            "package.module:factory, model.pt2, transformers:NAME, timm:NAME or torchvision:NAME"
        )
    if path.endswith(".py") and not (base / path).is_file():
        raise PlanError(f"{where}: the file {path} does not exist\n  try   correct the path")
    if model.config and path not in LIBRARIES:
        raise PlanError(
            f"{where}: config is for {', '.join(LIBRARIES)}, not for {path!r}\n"
            "  try   set these values in the factory"
        )


def _filled(model: Model, sizes: Mapping[str, int]) -> tuple[str, ...]:
    """Return the inputs with the values of `{name}`."""
    return tuple(
        _PLACEHOLDER.sub(lambda found: str(sizes.get(found[1], found[0])), given)
        for given in model.inputs
    )


def _check(plan: Plan) -> None:
    """Check what concerns several parts: environments, steps and unique ids."""
    for model in plan.models:
        _check_environments(model, plan.environments)
    if not plan.call:
        _check_steps(plan)
    seen: set[str] = set()
    for task in plan.tasks():
        if task.id in seen:
            raise PlanError(
                f"two tasks have the id {task.id!r}\n  try   give one of the models another name"
            )
        seen.add(task.id)


def _check_steps(plan: Plan) -> None:
    """Reject values of the grid that no step uses, and schemes that cannot be applied."""
    used = {name for m in plan.models for name in m.grid.scheme if name != "none"}
    if used and "compress" not in plan.steps:
        raise PlanError("the grid has schemes\n  try   add the step compress")
    if "compress" in plan.steps and not used:
        raise PlanError(
            "the step compress needs a scheme\n  try   add  grid: {scheme: [none, int8]}"
        )
    for model in plan.models:
        if model.source.endswith(".pt2") and set(model.grid.scheme) != {"none"}:
            raise PlanError(
                f"{model.name} cannot be compressed: a .pt2 file has no modules\n"
                "  try   give the model the grid {scheme: [none]}, or name its factory"
            )
    if set(plan.steps) <= {"export", "compress"}:
        for name, default in (("precision", "float32"), ("target", "none")):
            if any(set(getattr(model.grid, name)) != {default} for model in plan.models):
                raise PlanError(
                    f"grid.{name}: no step uses it\n  try   add the step convert, or remove the key"
                )


def _check_environments(model: Model, known: Mapping[str, str]) -> None:
    for name in model.grid.environment:
        if name not in ("none", *known):
            raise PlanError(
                f"{model.name}: unknown environment {name!r}{nearest(name, known)}\n"
                f"  try   add  environments: {{{name}: path/to/bin/python}}"
            )


def _placeholders(model: Model) -> set[str]:
    return {name for given in model.inputs for name in _PLACEHOLDER.findall(given)}


def _check_placeholders(model: Model, where: str) -> None:
    for sizes in model.grid.sizes:
        if missing := sorted(_placeholders(model) - set(sizes)):
            raise PlanError(
                f"{where}: the inputs use {{{missing[0]}}}, but the sizes are "
                f"{dict(sizes)}{nearest(missing[0], sizes)}\n"
                f"  try   add  grid: {{sizes: [{{{missing[0]}: 1}}]}}"
            )
