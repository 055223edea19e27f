"""The one judge of numbers: tolerances, comparison of results, and search for the first fault."""
