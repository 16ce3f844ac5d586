"""Engines only relay: they fold a piece of client work along every chain."""

from collections.abc import Mapping
from typing import Any

from fedrelay.engines.auto import Auto
from fedrelay.engines.cluster import Ray
from fedrelay.engines.inline import Inline
from fedrelay.engines.pool.engine import Pool
from fedrelay.engines.stacked import Stacked
from fedrelay.system.devices import kind_of
from fedrelay.types import Engine

ENGINES: dict[str, type[Engine]] = {
    "auto": Auto,
    "inline": Inline,
    "pool": Pool,
    "ray": Ray,
    "stacked": Stacked,
}


def bits(settings: Mapping[str, Any]) -> tuple[object, ...]:
    """What of an engine's settings shows in the results: two engines with the same are interchangeable."""
    name, native = settings.get("name", "auto"), bool(settings.get("native"))
    where = kind_of(settings.get("device")), settings.get("precision", "float32"), settings.get("compile", False)
    if name in ("inline", "pool", "ray"):
        return "natively" if native else "one by one", settings.get("threads", 1), *where
    return name, settings.get("rows"), native, *where  # a stack of what cannot be native is a stack like any other


__all__ = ["ENGINES", "Auto", "Inline", "Pool", "Ray", "Stacked", "bits"]
