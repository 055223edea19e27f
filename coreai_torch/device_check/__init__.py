"""Run small programs on the compute units of this machine, and record what happened."""
