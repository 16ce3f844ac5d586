"""Several runs, or none: comparisons, sweeps, groupings without training, the demonstration."""
