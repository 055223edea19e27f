"""Make torchvision importable in the guard of a test, which timm needs too.

The environment of the tests has it in a separate folder if torch is a build without CUDA.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

if importlib.util.find_spec("torchvision") is None:
    sys.path.append(str(Path(__file__).parents[1] / "models"))
    from zoo import torchvision_library

    torchvision_library.load()
