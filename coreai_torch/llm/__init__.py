"""Generation with models of `transformers`: conversion with a cache as state, and a runner.

`transformers` is imported when a model is converted; running an asset does without it.
"""

from .converting import convert
from .generator import Generator
from .program import GenerationProgram

__all__ = ["GenerationProgram", "Generator", "convert"]
