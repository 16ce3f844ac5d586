"""Engines only relay: they fold a piece of client work along every chain."""

from fedrelay.engines.inline import Inline
from fedrelay.engines.pool import Pool
from fedrelay.engines.stacked import Stacked
from fedrelay.types import Engine

ENGINES: dict[str, type[Engine]] = {"inline": Inline, "pool": Pool, "stacked": Stacked}

__all__ = ["ENGINES", "Inline", "Pool", "Stacked"]
