"""Tools that look into programs: values, first faults, differences, times. They build nothing."""
