"""`coreai-torch doctor` answers whatever the state of the installation."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from coreai_torch import errors, torch_version

ROOT = Path(__file__).parents[2]
BLOCK = """
import sys
class Block:
    def find_spec(self, name, path, target=None):
        if name == {module!r}:
            raise {error}
sys.meta_path.insert(0, Block())
from coreai_torch.cli import main
main(["doctor", "--json"])
"""


def doctor(code):
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, json.loads(done.stdout)


def test_a_working_installation_is_ok():
    code, answer = doctor("from coreai_torch.cli import main; main(['doctor', '--json'])")
    assert (code, answer["problems"]) == (0, [])
    assert answer["environment"]["torch versions tested"] == "2.9 to 2.15"
    assert "ops that this torch lacks" in answer["environment"]


@pytest.mark.parametrize(
    ("module", "error"),
    [
        ("torch", "ImportError('libtorch.so: not found')"),
        ("coreai.runtime", "OSError('wrong platform')"),
        ("coreai_torch.ops", "AttributeError('no op aten::gone')"),
    ],
)
def test_what_cannot_be_imported_is_a_problem(module, error):
    code, answer = doctor(BLOCK.format(module=module, error=error))
    assert code == 1
    (problem,) = answer["problems"]
    assert "cannot be imported" in problem
    assert error.split("'")[1] in problem
    assert answer["environment"]["python"]


def test_asset_is_not_checked_without_torch():
    script = BLOCK.replace('["doctor", "--json"]', '["doctor", "net.aimodel", "--json"]')
    code, answer = doctor(script.format(module="torch", error="ImportError('no torch')"))
    assert (code, answer["hazards"]) == (1, [])
    assert answer["problems"][1].startswith("net.aimodel was not checked")


def test_an_old_torch_is_refused_in_one_sentence():
    with pytest.raises(errors.UnsupportedTorchError, match=r"needs torch 2\.9 or later") as raised:
        torch_version.check("2.8.0+cpu")
    assert isinstance(raised.value, ImportError)


def test_a_new_torch_warns_with_the_tested_range():
    with pytest.warns(errors.TorchVersionWarning, match=r"2\.9 to 2\.15"):
        torch_version.check("2.16.0a0+gitabc")


@pytest.mark.parametrize("version", ["2.9.1", "2.13.0+cpu", "2.15.0+cu132"])
def test_tested_versions_pass_silently(version):
    torch_version.check(version)
