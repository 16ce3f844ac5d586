"""Engines only relay: they fold a piece of client work along every chain."""

from collections.abc import Mapping
from typing import Any

from fedrelay.engines.auto import Auto
from fedrelay.engines.cluster import Ray
from fedrelay.engines.inline import Inline
from fedrelay.engines.pool.engine import Pool
from fedrelay.engines.stacked import Stacked
from fedrelay.types import Engine

ENGINES: dict[str, type[Engine]] = {
    "auto": Auto,
    "inline": Inline,
    "pool": Pool,
    "ray": Ray,
    "stacked": Stacked,
}


def bits(settings: Mapping[str, Any]) -> tuple[str, object]:
    """What of an engine's settings shows in the results: two engines with the same are interchangeable."""
    name = settings.get("name", "auto")
    if name in ("inline", "pool", "ray"):
        return "one by one", settings.get("threads", 1)
    return name, settings.get("rows")


__all__ = ["ENGINES", "Auto", "Inline", "Pool", "Ray", "Stacked", "bits"]
