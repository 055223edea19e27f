"""Load and run a saved asset in a fresh process; print the seconds.

In the process that converted it, earlier allocations change the speed of a program: the 72
transposed weights of BERT cause page faults or not (1.6 s or 1.4 s).
"""

import asyncio
import atexit
import json
import sys
import time
from pathlib import Path

import torch
from coreai.authoring import AIModelAsset
from coreai.runtime import NDArray
from stages import Stages

# A runtime thread may use the interpreter while it shuts down, which aborts the process.
atexit.register(time.sleep, 0.3)

NARROW = {torch.int64: torch.int32}


async def timed(asset, args, stages, runs):
    with stages.timed("load"):
        context = asset.executable()
        model = await context.__aenter__()
        function = model.load_function("main")
    feeds = {
        name: NDArray(value.to(NARROW.get(value.dtype, value.dtype)).numpy())
        for name, value in zip(function.desc.input_names, args, strict=True)
    }
    with stages.timed("first run"):
        await function(feeds)
    for _ in range(runs):
        with stages.timed("run"):
            await function(feeds)
    await context.__aexit__(None, None, None)


def main():
    asset, inputs, runs = sys.argv[1:]
    stages = Stages()
    asyncio.run(timed(AIModelAsset.load(Path(asset)), torch.load(inputs), stages, int(runs)))
    print("\n" + json.dumps({"wall": stages.wall, "cpu": stages.cpu}))


main()
