"""A pytest plugin under which optional libraries cannot be imported: `-p blocked_imports`."""

import sys

LIBRARIES = (
    "coreai_opt",
    "dask",
    "diffusers",
    "distributed",
    "duckdb",
    "IPython",
    "playwright",
    "pyarrow",
    "timm",
    "torchao",
    "torchvision",
    "transformers",
    "ultralytics",
)


class _Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in LIBRARIES:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


sys.meta_path.insert(0, _Blocker())
