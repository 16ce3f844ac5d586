"""Engines only relay: they fold a piece of client work along every chain."""

from fedrelay.engines.inline import Inline

ENGINES = {"inline": Inline}

__all__ = ["ENGINES", "Inline"]
