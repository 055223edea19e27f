"""Compare every case of every lowering with torch.

Static and dynamic sizes, before and after `optimize`.
"""

from __future__ import annotations

import pytest
import torch
from batches import GROUPED, batches  # noqa: F401  a fixture
from case_runner import registered

from coreai_torch.lowering.registry import Lowering


# The values of the cases fit 32 bits; other tests check the warning.
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize(("entry", "case", "sizes", "batch"), GROUPED)
def test_case(entry, case, sizes, batch, batches):  # noqa: F811  the fixture
    batches.check(batch, entry, case, sizes)


@pytest.mark.parametrize(
    "entry",
    [e for e in registered() if isinstance(e, Lowering)],
    ids=lambda e: e.target.name(),  # workers must agree on the names: no addresses
)
def test_signature_matches_the_schema(entry):
    assert [p.name for p in entry.signature.params] == [
        a.name for a in entry.target._schema.arguments
    ]


def test_every_lowering_has_a_case():
    schemaless = [e for e in registered() if not isinstance(e.target, torch._ops.OpOverload)]
    bare = [str(e.target) for e in registered() if not e.cases and e not in schemaless]
    assert bare == []


def test_a_case_changes_every_optional_argument():
    unexercised = [
        f"{entry.target}: {param.name}"
        for entry in registered()
        if isinstance(entry, Lowering)
        for i, param in enumerate(entry.signature.params)
        if param.into and entry.target._schema.arguments[i].has_default_value()
        if not any(_differs(_given(case, i, param), param.default) for case in entry.cases)
    ]
    assert unexercised == []


def _given(case, i, param):
    return case.args[i] if i < len(case.args) else case.kwargs.get(param.name, param.default)


def _differs(given, default):
    return type(given) is not type(default) or given != default
