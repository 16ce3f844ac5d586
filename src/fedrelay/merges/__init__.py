"""How the batons that came back become the next ones."""

from fedrelay.merges.mean import Mean

__all__ = ["Mean"]
