"""Who trains after whom."""

from fedrelay.plans.chains import Ring, Singles, Superclients

__all__ = ["Ring", "Singles", "Superclients"]
