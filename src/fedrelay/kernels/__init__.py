"""Where the arithmetic of training is done: networks over flat vectors, with gradients written out."""
