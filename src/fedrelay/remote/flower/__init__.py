"""The Flower wire: the same run on a Flower federation, by Flower's public API alone."""
