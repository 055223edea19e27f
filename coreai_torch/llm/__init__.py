"""Text generation with `transformers` models: conversion with the cache as state, and a runner.

Only the conversion imports `transformers`; running a saved asset does not need it.
"""

from .bundle.checks.running import BundleReport, check
from .bundle.evaluation import EvaluationReport, evaluate
from .bundle.exporting import export
from .bundle.language_model import LanguageModel
from .bundle.loading import load
from .converting import convert
from .generator import Generator
from .program import GenerationProgram

__all__ = [
    "BundleReport",
    "EvaluationReport",
    "GenerationProgram",
    "Generator",
    "LanguageModel",
    "check",
    "convert",
    "evaluate",
    "export",
    "load",
]
