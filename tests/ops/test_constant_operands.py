"""All op cases, with each tensor in turn as a constant of the model.

The compiler folds ops on constants in its own way: it found 3 equal to infinity, so that `hypot` of
a constant and an input was infinite (coreai-core 1.0.0b3).
"""

from __future__ import annotations

from dataclasses import replace

import case_runner
import pytest

from coreai_torch.lowering.cases import T

# Variants that differ from eager, or that cannot be converted.
EXPECTED = {
    "native_layer_norm-5-0": "the compiler casts float16 constants below 6e-5 to zero",
    "coreai::dequantize-11-1": "the compiler rejects constant scales that are not positive",
}


def tensors(given):
    """Return the inputs among the arguments, in order."""
    if isinstance(given, list | tuple):
        return [one for each in given for one in tensors(each)]
    return [given] if isinstance(given, T) and not given.constant else []


def with_constant(given, chosen):
    """Return arguments in which one tensor, found by identity, is a constant."""
    if isinstance(given, list | tuple):
        return type(given)(with_constant(one, chosen) for one in given)
    return replace(given, constant=True) if given is chosen else given


def variants():
    for param in case_runner.ALL:
        entry, case = param.values
        inputs = tensors([*case.args, *case.kwargs.values()])
        distinct = {id(one): one for one in inputs}.values()
        for index, chosen in enumerate(distinct):
            if case.void or len(inputs) < 2 or len(distinct) < len(inputs):
                continue
            kwargs = {name: with_constant(value, chosen) for name, value in case.kwargs.items()}
            made = replace(case, args=with_constant(case.args, chosen), kwargs=kwargs)
            name = f"{param.id}-{index}"
            reason = EXPECTED.get(name)
            marks = [pytest.mark.xfail(reason=reason, strict=True)] if reason else []
            yield pytest.param(entry, made, id=name, marks=marks)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::coreai_torch.errors.NarrowingWarning")
@pytest.mark.parametrize(("entry", "case"), list(variants()))
def test_constant_operand(entry, case):
    model = case_runner.CaseModel(entry.target, case)
    pairs = case_runner.results(model, dynamic=False, run=case_runner.runner(case))
    case_runner.judge(pairs, case, model)
