"""Which method to try first on a federation, by published evidence; and a race that measures it."""

from __future__ import annotations

from fedrelay.studies.advise.advice import Advice, advise
from fedrelay.studies.advise.facts import Facts, Wishes

__all__ = ["Advice", "Facts", "Wishes", "advise"]
