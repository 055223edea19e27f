"""Measure what verification adds to a conversion; run by `benchmarks.verification`.

The last line of the output has the wall and the processor seconds of each part, children included.
"""

import argparse
import json
import os
import resource
import sys
import time
import warnings
from pathlib import Path

import torch
from torch import nn

import coreai_torch

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "models"))


class _First(nn.Module):
    """Return the first result of a `transformers` model."""

    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, x):
        return self.model(x, return_dict=False)[0]


def _transformer(model_class, config_class, **config):
    import transformers

    made = getattr(transformers, model_class)(getattr(transformers, config_class)(**config))
    return _First(made.eval())


def _bert(**config):
    return _transformer("BertModel", "BertConfig", **config), (torch.randint(30_000, (1, 128)),)


def _small_bert():
    sizes = {"hidden_size": 128, "num_attention_heads": 2, "intermediate_size": 512}
    return _bert(num_hidden_layers=2, **sizes)


def _vit():
    model = _transformer("ViTForImageClassification", "ViTConfig", num_labels=1000)
    return model, (torch.rand(1, 3, 224, 224),)


def _segformer(size):
    name = "SegformerForSemanticSegmentation"
    return _transformer(name, "SegformerConfig", num_labels=150), (torch.rand(1, 3, size, size),)


class _Named(nn.Module):
    """Return one entry of a dictionary of results."""

    def __init__(self, model, name):
        super().__init__()
        self.model, self.name = model, name

    def forward(self, x):
        return self.model(x)[self.name]


def _lraspp():
    from zoo.torchvision_library import models

    build = models("segmentation").lraspp_mobilenet_v3_large
    model = build(weights=None, weights_backbone=None).eval()
    return _Named(model, "out"), (torch.rand(1, 3, 520, 520),)


def _yolo(size):
    from zoo.ultralytics_models import _library

    model = _library().YOLO("yolo11n.yaml").model.eval().fuse(verbose=False)
    model.model[-1].export, model.model[-1].format = True, "coreai"
    return model, (torch.rand(1, 3, size, size),)


MODELS = {
    "LR-ASPP 520": _lraspp,
    "SegFormer-B0 512": lambda: _segformer(512),
    "BERT 6 layers": lambda: _bert(num_hidden_layers=6),
    "BERT 12 layers": _bert,
    "ViT-B 224": _vit,
    "YOLO11n 640": lambda: _yolo(640),
}
SMALL = {  # for the thorough comparison, which takes minutes at real sizes
    "SegFormer-B0 128": lambda: _segformer(128),
    "BERT 2 layers of 128": _small_bert,
    "YOLO11n 128": lambda: _yolo(128),
}


class _Clock:
    """Collects the seconds of parts."""

    def __init__(self):
        self.found = {}

    def time(self, part, action):
        wall, processor = time.perf_counter(), _processor()
        result = action()
        self.found[part] = {
            "wall": time.perf_counter() - wall,
            "processor": _processor() - processor,
        }
        return result


def _processor():
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(one.ru_utime + one.ru_stime for one in used)


def _prepared(name):
    torch.manual_seed(0)
    model, args = {**MODELS, **SMALL}[name]()
    small = nn.Linear(4, 4).eval()  # what the libraries import and compile on first use
    coreai_torch.convert(small, (torch.rand(2, 4),))
    with torch.no_grad():
        model(*args)
    return model, args


def default(name):
    """Return the seconds of the parts of a conversion, and its verdict."""
    model, args = _prepared(name)
    clock = _Clock()
    with torch.no_grad():
        clock.time("eager", lambda: model(*args))
        exported = clock.time("export", lambda: torch.export.export(model, args))
        table = coreai_torch.get_decomp_table()
        clock.time("decompose", lambda: exported.run_decompositions(table))
    program = clock.time("convert", lambda: coreai_torch.convert(model, args))
    return clock.found, program.verdict


def thorough(name):
    """Return the seconds of a comparison with all inputs, and its verdict."""
    model, args = _prepared(name)
    program = coreai_torch.convert(model, args, verify=False)
    clock = _Clock()
    verdict = clock.time("verify", lambda: coreai_torch.verify(model, program, args, seconds=3600))
    return clock.found, verdict


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", choices=[*MODELS, *SMALL])
    given = parser.parse_args().model
    seconds, verdict = thorough(given) if given in SMALL else default(given)
    assert verdict.ok, verdict
    print(json.dumps({"seconds": seconds, "verdict": str(verdict)}), flush=True)
    os._exit(0)  # a thread of the runtime may abort an interpreter that shuts down
