"""The probes of torch_compat answer as the installed version of torch behaves."""

import pytest
import torch
from packaging.version import Version

from coreai_torch import supported_ops, torch_compat
from coreai_torch.lowering.registry import BUILTIN

VERSION = Version(Version(torch.__version__).base_version)


@pytest.mark.parametrize(
    ("probe", "until"),
    [
        (torch_compat.clamp_ignores_nan_min, "2.11"),
        (torch_compat.clamp_wraps_negative_bounds, "2.14"),
        (torch_compat.linspace_rounds_half_steps, "2.14"),
        (torch_compat.sdpa_accepts_mask_and_causal, "2.13"),
    ],
    ids=lambda given: getattr(given, "__name__", given),
)
def test_probe_answers_yes_up_to_a_version(probe, until):
    assert probe() == (VERSION.release[:2] <= Version(until).release)


def test_isclose_broadcasts_from_2_12():
    assert torch_compat.isclose_broadcasts_equal_nan() == (VERSION.release[:2] >= (2, 12))


def test_probes_use_real_tensors_inside_a_fake_mode():
    with torch_compat.FakeTensorMode():
        torch_compat.clamp_wraps_negative_bounds.cache_clear()
        assert isinstance(torch_compat.clamp_wraps_negative_bounds(), bool)


def test_an_op_that_torch_lacks_is_skipped():
    missing = torch_compat.aten.no_such_op.Tensor
    assert isinstance(missing, torch_compat.MissingOverload)
    assert missing.name == "aten::no_such_op.Tensor"
    assert torch_compat.aten.no_such_op.default.name == "aten::no_such_op"
    for name in BUILTIN.missing:
        assert not hasattr(torch.ops.aten, name.removeprefix("aten::").partition(".")[0])


@pytest.mark.parametrize("name", sorted(torch_compat.OP_VERSIONS))
def test_op_exists_in_the_versions_that_the_table_says(name):
    first, last = (Version(v).release if v else None for v in torch_compat.OP_VERSIONS[name])
    release = VERSION.release[:2]
    expected = (first is None or release >= first) and (last is None or release <= last)
    assert hasattr(torch.ops.aten, name.removeprefix("aten::")) == expected
    assert any(m.partition(".")[0] == name for m in BUILTIN.missing) != expected


def test_missing_ops_are_listed_with_their_versions():
    listed = {op.name: op for op in supported_ops.supported()}
    for name, (first, last) in torch_compat.OP_VERSIONS.items():
        op = listed.get(f"{name.replace('::', '.')}.default")
        assert op is not None
        assert (first or last) in op.notes
