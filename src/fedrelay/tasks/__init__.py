"""What is learned: a model, its loss and its metrics."""
