"""Tools that inspect programs: intermediate values, first faults, graph differences, times."""
