"""Bundles with static shapes for the Neural Engine: write, check and run them."""
