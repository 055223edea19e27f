"""The Core AI export of ultralytics: convert, save, run, compare."""

import asyncio
import os

import numpy as np
import pytest
import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray

from coreai_torch.debugging.histogram import operation_histogram

SIZE = 64


@pytest.mark.parametrize("name", ["yolo11n", "yolov8n-seg"])
def test_export(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("COREAI_TORCH_OPTIMIZE", raising=False)  # set by tests/conftest.py
    os.environ.update(
        YOLO_AUTOINSTALL="false", YOLO_OFFLINE="true", YOLO_CONFIG_DIR=str(tmp_path / "settings")
    )
    ultralytics = pytest.importorskip("ultralytics", reason="ultralytics is not installed")
    yolo = ultralytics.YOLO(f"{name}.yaml")
    exported = []
    yolo.add_callback("on_export_end", exported.append)
    path = yolo.export(format="coreai", imgsz=SIZE)
    asset = AIModelAsset.load(path)
    program = asset.program
    before = operation_histogram(program).counts
    program.optimize()
    assert operation_histogram(program).counts == before  # `save_asset` optimized it
    image = torch.rand(1, 3, SIZE, SIZE)
    with torch.no_grad():
        want = exported[0].model(image)
    want = want if isinstance(want, list | tuple) else [want]
    got = asyncio.run(_run(asset, image))
    for expected, actual in zip(want, got, strict=False):  # torch also returns raw features
        torch.testing.assert_close(torch.from_numpy(actual), expected, rtol=1e-3, atol=1e-3)


async def _run(asset, image):
    async with asset.executable() as model:
        function = model.load_function("main")
        (name,) = function.desc.input_names
        result = await function({name: NDArray(image.numpy())})
        return [np.array(result[n].numpy()) for n in function.desc.output_names]
