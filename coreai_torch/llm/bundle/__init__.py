"""Bundles for the language-model engine: write, check and run them."""
