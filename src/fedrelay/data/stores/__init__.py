"""Examples that are not in memory: read from the user's data sets, or from a memory-mapped file."""
