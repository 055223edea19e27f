"""Doors to `coreai_torch.compression` under the names that other packages import."""
