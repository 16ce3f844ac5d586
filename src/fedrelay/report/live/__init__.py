"""Runs that other processes write, as people look at them: in a terminal, or on a page of this machine."""
