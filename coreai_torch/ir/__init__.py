"""Everything that touches `coreai`; the only room allowed to import `coreai._compiler`."""

# First of all: in coreai-core 1.0.0b3 an import that starts at the dialects is circular.
import coreai.authoring  # noqa: F401
