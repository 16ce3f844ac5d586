"""A run: the loop that repeats plan, relay and merge, what it costs, and how it is kept on disk."""
