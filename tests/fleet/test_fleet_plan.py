"""Plans: validation with hints, expansion of the grid, stable ids."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from coreai_torch.errors import PlanError
from coreai_torch.fleet import load_plan, parse_plan
from coreai_torch.fleet.task import Task

HERE = Path(__file__).parent
NET = {"source": "fleet_models.py:net", "name": "net", "inputs": ["x=f32[{batch},64]"]}
SIZES = {"sizes": [{"batch": 1}, {"batch": 8}]}


def _plan(**changes):
    given = {"models": [NET], "steps": ["convert"], "grid": SIZES, **changes}
    return parse_plan({k: v for k, v in given.items() if v is not None}, folder=HERE)


def _ids(plan):
    return [task.id for task in plan.tasks()]


def test_grid_expands_to_all_combinations():
    grid = {**SIZES, "precision": ["float32", "float16"], "scheme": [None, "int8"], "seeds": [0, 3]}
    tasks = list(_plan(grid=grid, steps=["compress", "convert"]).tasks())
    assert len(tasks) == len({task.id for task in tasks}) == 16
    assert tasks[0].id == "net[batch=1]"
    assert tasks[-1].id == "net[batch=8,float16,int8,seed=3]"
    assert tasks[-1].inputs == ("x=f32[8,64]",)


def test_ids_stay_the_same_when_the_grid_grows():
    before = _ids(_plan())
    grid = {**SIZES, "precision": ["float32", "float16"], "seeds": [0, 1]}
    assert set(before) < set(_ids(_plan(grid=grid)))


def test_targets_of_convert_are_accepted():
    grid = {**SIZES, "target": [None, "neural_engine"]}
    assert _ids(_plan(grid=grid))[1] == "net[batch=1,neural_engine]"


def test_environments_are_an_axis_of_the_grid(tmp_path):
    python = tmp_path / "python"
    python.touch()
    grid = {**SIZES, "environment": ["none", "torch-2.15"]}
    plan = _plan(grid=grid, environments={"torch-2.15": str(python)})
    assert _ids(plan)[:2] == ["net[batch=1]", "net[batch=1,torch-2.15]"]
    assert [task.python for task in plan.tasks()][:2] == ["", str(python)]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"grid": {**SIZES, "environment": ["torch"]}}, "unknown environment 'torch'"),
        ({"environments": {"torch": "missing/python"}}, "environments.torch: the file"),
        ({"environments": ["python"]}, "give each interpreter a name"),
    ],
)
def test_wrong_environments_are_rejected(changes, message):
    with pytest.raises(PlanError, match=message):
        _plan(**changes)


def test_model_overrides_grid_and_limits():
    model = {**NET, "grid": {"sizes": [{"batch": 2}]}, "limits": {"memory": 8}}
    (task,) = _plan(models=[model], limits={"seconds": 5}).tasks()
    assert (task.id, task.limits.seconds, task.limits.memory) == ("net[batch=2]", 5, 8)


def test_steps_run_in_a_fixed_order_with_their_options():
    steps = [{"bench": {"runs": 3}}, "verify", "convert"]
    plan = _plan(steps=steps)
    assert list(plan.steps) == ["convert", "verify", "bench"]
    assert plan.steps["bench"] == {"runs": 3}


def test_pattern_names_every_exported_program(tmp_path):
    for name in ("b.pt2", "a.pt2"):
        (tmp_path / name).touch()
    plan = parse_plan({"models": ["*.pt2"], "steps": ["convert"]}, folder=tmp_path)
    assert _ids(plan) == ["a.pt2", "b.pt2"]


def test_plan_is_read_from_yaml_and_json(tmp_path):
    (tmp_path / "plan.json").write_text(json.dumps({"models": ["timm:vit"], "steps": ["convert"]}))
    (tmp_path / "plan.yaml").write_text("models: [timm:vit]\nsteps: [convert]\n")
    plans = [load_plan(tmp_path / name) for name in ("plan.json", "plan.yaml")]
    assert plans[0] == plans[1]
    assert plans[0].name == "plan"


def test_task_survives_a_round_trip_through_json():
    (task, _) = _plan().tasks()
    assert Task.from_dict(json.loads(json.dumps(task.as_dict()))) == task


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": []}, "unknown key 'model'; did you mean 'models'?"),
        ({"models": None}, "the key 'models' is missing"),
        ({"steps": ["conver"]}, "unknown step 'conver'; did you mean 'convert'?"),
        ({"steps": [{"bench": {"run": 1}}]}, "unknown key 'run'; did you mean 'runs'?"),
        ({"steps": []}, "steps is empty"),
        ({"steps": ["convert", {"call": "a:b"}]}, "call cannot be combined"),
        ({"steps": [{"call": "a"}]}, "try   name a function"),
        ({"grid": {"precision": ["float61"]}}, "did you mean 'float16'?"),
        ({"grid": {"precission": ["float16"]}}, "did you mean 'precision'?"),
        ({"grid": {"seeds": ["a"]}}, "try   list integers"),
        ({"grid": {"sizes": [4]}}, "give each size a name"),
        ({"grid": {"sizes": [{"batch": 0}]}}, "grid.sizes.batch is 0"),
        ({"grid": {"sizes": [{"batches": 2}]}}, "did you mean 'batches'?"),
        ({"grid": {**SIZES, "scheme": []}}, "grid.scheme is empty"),
        ({"grid": {**SIZES, "scheme": ["int99"]}}, "unknown scheme 'int99'"),
        ({"grid": {**SIZES, "scheme": ["int8"]}}, "add the step compress"),
        ({"grid": {**SIZES, "target": ["gpus"]}}, "unknown target 'gpus'; did you mean 'gpu'?"),
        ({"steps": ["compress"]}, "the step compress needs a scheme"),
        ({"limits": {"memory": -1}}, "limits.memory is -1"),
        ({"limits": {"minutes": 1}}, "unknown key 'minutes'"),
        ({"models": [NET, NET]}, "two tasks have the id 'net[batch=1]'"),
        ({"models": ["fleet_models"]}, "does not name a model"),
        ({"models": ["nowhere.py:net"]}, "the file nowhere.py does not exist"),
        ({"models": ["nowhere.pt2"]}, "the file nowhere.pt2 does not exist"),
        ({"models": ["nowhere/*.pt2"]}, "no file matches"),
        ({"models": [{**NET, "config": {"depth": 2}}]}, "config is for transformers"),
        ({"models": [{"name": "net"}]}, "the key 'source' is missing"),
        ({"models": [7]}, "models[0].source is 7"),
        ({"models": []}, "models is empty"),
        ({"models": [{**NET, "checkpoint": "no.pt"}]}, "models[0]: the checkpoint no.pt does not"),
        ({"models": [{**NET, "grid": {"sizes": [{"batch": 1, "n": 2}]}}]}, "no input uses {n}"),
        ({"steps": [["convert"]]}, "steps[0]: unknown step"),
        ({"steps": ["convert", {"convert": {}}]}, "steps[1]: the step convert is listed twice"),
        ({"steps": [{"convert": {"recognize": "no"}}]}, "recognize is 'no'\n  try   give true or"),
        ({"steps": [{"verify": {"mode": "quik"}}]}, "did you mean 'quick'?"),
        ({"steps": [{"bench": {"runs": 0}}]}, "steps[0].bench.runs is 0"),
        ({"steps": [{"bench": {"warmup": -1}}]}, "steps[0].bench.warmup is -1"),
        ({"steps": [{"lint": {"units": ["gpus"]}}]}, "did you mean 'gpu'?"),
        ({"steps": [{"lint": {"os": "x"}}]}, "steps[0].lint.os is 'x'"),
        ({"keep": "no"}, "keep is 'no'\n  try   give true or false"),
        ({"limits": {"memory": float("nan")}}, "limits.memory is nan"),
        ({"grid": {**SIZES, "seeds": [0, 0]}}, "grid.seeds lists 0 twice"),
        ({"grid": {**SIZES, "seeds": [-1]}}, "grid.seeds has -1"),
        ({"grid": {**SIZES, "precision": [16]}}, "grid.precision is 16"),
        ({"grid": {**SIZES, "precision": None}}, "grid.precision has no value"),
        ({"grid": {**SIZES, "precision": ["float16"]}, "steps": ["export"]}, "no step uses it"),
    ],
)
def test_error_names_the_place_and_a_fix(changes, message):
    with pytest.raises(PlanError) as caught:
        _plan(**changes)
    assert message in str(caught.value)
    assert "\n  try   " in str(caught.value)


@pytest.mark.parametrize("name", ["plan.yaml", "plan.json"])
def test_repeated_key_of_a_plan_is_rejected(tmp_path, name):
    text = '{"models": ["timm:vit"],\n "steps": ["convert"], "models": ["timm:resnet18"]}'
    (tmp_path / name).write_text(text)
    with pytest.raises(PlanError, match="'models'"):
        load_plan(tmp_path / name)


def test_sizes_and_seeds_that_a_model_does_not_use_make_no_more_tasks(tmp_path):
    (tmp_path / "a.pt2").touch()
    (tmp_path / "m.py").touch()
    models = ["a.pt2", "m.py:net", {"source": "m.py:wide", "inputs": ["x=f32[{batch},4]"]}]
    sizes = [{"batch": 1, "n": 1}, {"batch": 1, "n": 2}, {"batch": 2, "n": 1}]
    data = {"models": models, "steps": ["convert"], "grid": {"sizes": sizes, "seeds": [0, 1]}}
    assert _ids(parse_plan(data, folder=tmp_path)) == [
        *("a.pt2", "m.py:net", "m.py:net[seed=1]", "m.py:wide[batch=1]"),
        *("m.py:wide[batch=1,seed=1]", "m.py:wide[batch=2]", "m.py:wide[batch=2,seed=1]"),
    ]


@pytest.mark.parametrize(
    "key", [{"inputs": ["x=f32[1]"]}, {"checkpoint": "a.pt2"}, {"grid": {"seeds": [0, 1]}}]
)
def test_exported_program_has_its_own_inputs_and_weights(tmp_path, key):
    (tmp_path / "a.pt2").touch()
    data = {"models": [{"source": "a.pt2", **key}], "steps": ["convert"]}
    with pytest.raises(PlanError, match="has its own inputs and weights"):
        parse_plan(data, folder=tmp_path)


def test_invalid_yaml_is_reported_with_its_line(tmp_path):
    (tmp_path / "plan.yaml").write_text("models: [a\nsteps: {")
    with pytest.raises(PlanError, match="line 2"):
        load_plan(tmp_path / "plan.yaml")


def test_exported_program_cannot_be_compressed(tmp_path):
    (tmp_path / "a.pt2").touch()
    data = {"models": ["a.pt2"], "grid": {"scheme": ["int8"]}, "steps": ["compress", "convert"]}
    with pytest.raises(PlanError, match=r"a\.pt2 cannot be compressed"):
        parse_plan(data, folder=tmp_path)
