"""Worker processes of one thread each, over shared memory."""

from fedrelay.engines.pool.engine import Pool

__all__ = ["Pool"]
