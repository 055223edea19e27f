"""Building MLIR; with `asset`, the only package that may import `coreai._compiler`."""

# Must be first: in coreai-core 1.0.0b3 importing the dialects first is circular.
import coreai.authoring  # noqa: F401
