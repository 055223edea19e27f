"""Cases that travel together: one program for a dozen of them, and a verdict for each.

A case of a simple op takes 58 ms by itself and 12 in company. One that fails in company is tried
alone, so that its failure is its own. If its sizes vary it always is: a dozen together take longer
than one after the other, as torch weighs every open size against all of them.
"""

from __future__ import annotations

import functools
import os
from collections import defaultdict

import case_runner
import pytest
import torch
from case_runner import ALL

SIZE = 12


def _taken_apart(target):
    """Whether the op needs a decomposition, which would be one for the whole company."""
    return isinstance(target, torch._ops.OpOverload) and (
        target._schema.is_mutable
        or torch._C._dispatch_has_kernel_for_dispatch_key(
            target.name(), "CompositeImplicitAutograd"
        )
    )


def _grouped():
    """Neighbours of the registry in companies; a worker of pytest-xdist gets whole ones."""
    seats = defaultdict(int)
    for param in ALL:
        entry, _ = param.values
        kind = "decomposed" if _taken_apart(entry.target) else "lowered"
        name = f"{kind}-{seats[kind] // SIZE}"
        seats[kind] += 1
        group = pytest.mark.xdist_group(f"cases-{name}")
        for row in case_runner.sized(param):
            yield pytest.param(*row.values, name, id=row.id, marks=[*row.marks, group])


GROUPED = list(_grouped())


class Together(torch.nn.Module):
    """Several models one beside the other; their results in one list."""

    def __init__(self, models):
        super().__init__()
        self.models = torch.nn.ModuleList(models)
        self.feeds = [feed for model in models for feed in model.feeds]

    def forward(self, *inputs):
        feed = iter(inputs)
        return [
            result
            for model in self.models
            for result in case_runner.listed(model(*[next(feed) for _ in model.feeds]))
        ]


class Company:
    """What came of the cases that travelled together; where that fails, the halves go apart."""

    def __init__(self):
        self.right, self.quarrels = set(), {}

    def travel(self, members):
        """Whether each of them arrived."""
        models = [case_runner.CaseModel(entry.target, case) for entry, case in members]
        journey = Together(models) if len(models) > 1 else models[0]
        try:
            self._judge(members, models, case_runner.results(journey, dynamic=False))
        except Exception as cause:
            if len(members) == 1:
                return False
            middle = len(members) // 2
            arrived = [self.travel(half) for half in (members[:middle], members[middle:])]
            if all(arrived):
                self.quarrels |= {_key(*m): f"{type(cause).__name__}: {cause}" for m in members}
            return all(arrived)
        return self.right.issuperset(_key(*member) for member in members)

    def _judge(self, members, models, pairs):
        (count,) = {len(results) for pair in pairs for results in pair}
        start = 0
        for model, (entry, case) in zip(models, members, strict=True):
            end = start + len(case_runner.listed(model(*model.feeds)))
            try:
                case_runner.judge([[side[start:end] for side in pair] for pair in pairs], case)
                self.right.add(_key(entry, case))
            except AssertionError as difference:
                self.quarrels[_key(entry, case)] = str(difference)
            start = end
        assert start == count

    def check(self, entry, case):
        """By what came of it in company; if that is bad, alone, so that the failure is its own."""
        quarrel = self.quarrels.get(_key(entry, case))
        if _key(entry, case) not in self.right or quarrel:
            case_runner.check(entry, case, dynamic=False)
            assert not quarrel, f"right alone, but beside others: {quarrel}"


def _key(entry, case):
    return id(entry), id(case)  # ops of one family share their cases


class Companies:
    """The companies of the tests that were asked for; those in use are kept."""

    def __init__(self, tests, folder):
        self.folder = folder
        self.asked = defaultdict(list)
        for test in tests:
            given = test.callspec.params
            if given["sizes"] == "static":
                self.asked[given["company"]].append((given["entry"], given["case"]))

    def check(self, name, entry, case, sizes):
        if sizes == "dynamic":
            case_runner.check(entry, case, dynamic=True)
        else:
            self._travelled(name).check(entry, case)

    @functools.lru_cache(maxsize=1)  # noqa: B019  this object lives to the end
    def _travelled(self, name):
        members = self.asked[name]
        company = Company()
        started = self.folder / name  # there already if the process died of it
        if len(members) > 1 and not started.exists():
            started.touch()
            company.travel(members)
            started.unlink()
        return company


@pytest.fixture(scope="session")
def companies(request, tmp_path_factory):
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", "")
    base = tmp_path_factory.getbasetemp()
    # Of all workers, if there are several: another goes on where one died.
    folder = (base.parent if run else base) / f"travelling-{run}"
    folder.mkdir(exist_ok=True)
    return Companies([t for t in request.session.items if "companies" in t.fixturenames], folder)
