"""Aliases of `coreai_torch.compression` under the module names that other packages import."""
