import sys
from pathlib import Path

import coreai_torch.ops  # noqa: F401  # registers the lowerings with their cases

# The folders of the case runner and of the decoder.
for folder in ("ops", "models"):
    sys.path.insert(0, str(Path(__file__).parents[1] / folder))
