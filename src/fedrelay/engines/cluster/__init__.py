"""Worker processes of one thread each, on the machines of a Ray cluster."""

from fedrelay.engines.cluster.engine import Ray

__all__ = ["Ray"]
