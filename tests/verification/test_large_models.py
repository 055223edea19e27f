"""`convert` verifies BERT-base and ViT-B with few calls of the runtime."""

from __future__ import annotations

import os

import pytest
import torch

from coreai_torch import TorchConverter
from coreai_torch.capture.prepare import prepare
from coreai_torch.converter import capture_rules
from coreai_torch.verification import Mode, Settings, Subject, examine

SECONDS = 10  # on two cores that do nothing else


def bert():
    transformers = pytest.importorskip("transformers")
    model = transformers.BertModel(transformers.BertConfig())
    ids = torch.randint(0, 30000, (1, 128))
    return model, (), {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def vit():
    transformers = pytest.importorskip("transformers")
    return transformers.ViTModel(transformers.ViTConfig()), (torch.randn(1, 3, 224, 224),), {}


@pytest.mark.slow
@pytest.mark.parametrize("build", [bert, vit], ids=["BERT-base", "ViT-B"])
def test_quick_verification_makes_few_runtime_calls(build):
    torch.manual_seed(0)
    model, args, kwargs = build()
    converter = TorchConverter()
    captured = prepare(model.eval(), args, kwargs, rules=capture_rules(converter))
    program = converter.add_exported_program(captured.program).to_coreai()
    subject = Subject(captured.program, captured.plan, captured.reference)
    is_quiet = os.getloadavg()[0] < 1
    leaves = subject.leaves(args, kwargs)
    verdict = examine(subject, program, leaves, Settings(mode=Mode.QUICK))
    assert verdict, str(verdict)
    assert {t.optimized for t in verdict.trials if t.engine == "runtime"} == {False, True}
    assert verdict.runtime_calls <= 4
    assert verdict.seconds < SECONDS or not is_quiet
