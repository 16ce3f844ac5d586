"""The command line: a few lines around the library."""

from fedrelay.cli.main import main

__all__ = ["main"]
