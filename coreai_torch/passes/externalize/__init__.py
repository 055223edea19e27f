"""Keeps the boundary of chosen submodules: marked while exporting, cut out when lowering."""
