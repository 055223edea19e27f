"""Run a dozen cases in one program, and judge each by itself.

A case of a simple op takes 58 ms alone and 12 ms in a batch. A case that fails in a batch runs
again alone, so that it reports its own error. Cases with dynamic sizes always run alone: a dozen
in one program take longer than one after the other, because torch compares every dynamic size with
all others.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict

import case_runner
import pytest
import torch
from case_runner import ALL

from tests.forms import batched, stored

SIZE = 12


def _is_decomposed(target):
    """Return whether the op needs a decomposition, which would run for the whole batch."""
    return isinstance(target, torch._ops.OpOverload) and (
        target._schema.is_mutable
        or torch._C._dispatch_has_kernel_for_dispatch_key(
            target.name(), "CompositeImplicitAutograd"
        )
    )


def _grouped():
    """Yield all rows with the name of their batch; one worker of pytest-xdist runs a batch."""
    counts = defaultdict(int)
    for param in ALL:
        entry, case = param.values
        kind = "decomposed" if _is_decomposed(entry.target) else "lowered"
        kind = f"{kind}-exact" if case.exact else kind
        kind = f"{kind}-by-torch" if case.by_torch else kind
        name = f"{kind}-{counts[kind] // SIZE}"
        counts[kind] += 1
        group = pytest.mark.xdist_group(f"cases-{name}")
        for row in case_runner.sized(param):
            yield pytest.param(*row.values, name, id=row.id, marks=[*row.marks, group])


GROUPED = list(_grouped())
NAMES = {tuple(map(id, param.values)): param.id for param in ALL}  # `flip-0` for the first case


class Combined(torch.nn.Module):
    """Call several models and return their results as one list."""

    def __init__(self, models):
        super().__init__()
        self.models = torch.nn.ModuleList(models)
        self.cases = [case for model in models for case in model.cases]
        self.emitted_for = models[0].emitted_for
        self.feeds = [feed for model in models for feed in model.feeds]

    def forward(self, *inputs):
        feed = iter(inputs)
        return [
            result
            for model in self.models
            for result in case_runner.listed(model(*[next(feed) for _ in model.feeds]))
        ]


class Batch:
    """The outcome of each case of a batch; a batch that fails is split in halves."""

    def __init__(self):
        self.passed, self.failures, self.forms = set(), {}, {}

    def run(self, members):
        """Return whether every member passed."""
        models = [case_runner.CaseModel(entry.target, case) for entry, case in members]
        model = Combined(models) if len(models) > 1 else models[0]
        try:
            run = case_runner.runner(members[0][1])
            pairs = case_runner.results(model, dynamic=False, run=run)
            counts = [len(case_runner.listed(one(*one.feeds))) for one in models]
            self._judge(members, models, pairs, counts)
            self._keep_forms(model.program, members, counts)
        except Exception as cause:
            if len(members) == 1:
                return False
            middle = len(members) // 2
            passed = [self.run(half) for half in (members[:middle], members[middle:])]
            if all(passed):
                self.failures |= {_key(*m): f"{type(cause).__name__}: {cause}" for m in members}
            return all(passed)
        return self.passed.issuperset(_key(*member) for member in members)

    def _judge(self, members, models, pairs, counts):
        (count,) = {len(results) for pair in pairs for results in pair}
        start = 0
        for model, own_count, (entry, case) in zip(models, counts, members, strict=True):
            end = start + own_count
            try:
                own = [[side[start:end] for side in pair] for pair in pairs]
                case_runner.judge(own, case, model)
                self.passed.add(_key(entry, case))
            except AssertionError as difference:
                self.failures[_key(entry, case)] = str(difference)
            start = end
        assert start == count

    def _keep_forms(self, program, members, counts):
        if stored.are_comparable():
            found = batched.forms(program, counts)
            self.forms |= dict(zip((_key(*m) for m in members), found, strict=True))

    def accepts(self, entry, case):
        """Return whether a case passed in the batch."""
        return _key(entry, case) in self.passed and _key(entry, case) not in self.failures

    def check(self, entry, case):
        """Accept a case that passed in the batch; run any other alone to get its own error."""
        failure = self.failures.get(_key(entry, case))
        if not self.accepts(entry, case):
            case_runner.check(entry, case, dynamic=False)
            assert not failure, f"passes alone, but fails in a batch: {failure}"
        key = _key(entry, case)
        if key in self.forms and key in NAMES:
            stored.check(NAMES[key], self.forms[key])


def _key(entry, case):
    return id(entry), id(case)  # ops of one family share their cases


class Batches:
    """The batches of the selected tests; the last one that ran is cached."""

    def __init__(self, tests, folder):
        self.folder = folder
        self.selected = defaultdict(list)
        for test in tests:
            given = test.callspec.params
            if given["sizes"] == "static":
                self.selected[given["batch"]].append((given["entry"], given["case"]))

    def check(self, name, entry, case, sizes):
        if sizes == "dynamic":
            case_runner.check(entry, case, dynamic=True)
        else:
            self._batch(name).check(entry, case)

    @functools.lru_cache(maxsize=1)  # noqa: B019  this object exists until the process exits
    def _batch(self, name):
        members = self.selected[name]
        batch = Batch()
        started = self.folder / name  # exists already if the batch crashed a process
        if len(members) > 1 and not started.exists():
            started.touch()
            batch.run(members)
            started.unlink()
        return batch


@pytest.fixture(scope="session")
def batches(request, tmp_path_factory):
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    base = tmp_path_factory.getbasetemp()
    # All workers of pytest-xdist share the folder: another continues after one crashed.
    folder = (base.parent if run else base) / f"batches-{run}"
    folder.mkdir(exist_ok=True)
    return Batches([t for t in request.session.items if "batches" in t.fixturenames], folder)
