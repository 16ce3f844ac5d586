"""Engines only relay: they fold a piece of client work along every chain."""

from fedrelay.engines.inline import Inline
from fedrelay.engines.pool import Pool
from fedrelay.types import Engine

ENGINES: dict[str, type[Engine]] = {"inline": Inline, "pool": Pool}

__all__ = ["ENGINES", "Inline", "Pool"]
