"""Time and memory of single ops at the sizes that models use."""
