"""The findings in models of the zoo are those that were read and stored.

A changed count is either a rule that changed or a program that changed. Read the places with
`python -m tests.linting.zoo_findings NAME`, then store them with `--record`.
"""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from coreai_torch.targets.lint import RULES

from .zoo_findings import RECORDED, STORED, counts, findings

EXPECTED = json.loads(STORED.read_text())
FAST = ("lstm", "float16 distilbert")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("job", FAST)
def test_findings_in_a_model_are_the_stored_ones(job):
    assert counts(findings(job)) == EXPECTED[job]


@pytest.mark.slow
def test_findings_in_all_recorded_models_are_the_stored_ones():
    command = [sys.executable, "-m", "tests.linting.zoo_findings"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found = {}
    for line in done.stdout.splitlines():
        found.update(json.loads(line))
    assert {job: counts(one) for job, one in found.items()} == {j: EXPECTED[j] for j in RECORDED}


def test_stored_findings_name_rules_and_models():
    assert set(EXPECTED) >= set(RECORDED)
    assert {code for one in EXPECTED.values() for code in one} <= {rule.code for rule in RULES}
