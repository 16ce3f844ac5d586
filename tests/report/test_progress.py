"""Bars of what runs."""

from __future__ import annotations

import torch
from rich.progress import Progress

from fedrelay import Federation, Task
from fedrelay.data import Dirichlet, digits
from fedrelay.engines import Inline
from fedrelay.models import Logistic
from fedrelay.report.progress import Watched
from fedrelay.types import Engine


def test_an_engine_that_is_watched_says_all_that_it_says_itself():
    federation = Federation.split(digits(), Dirichlet(alpha=0.5), 4)
    engine = Inline(federation, Task.of(Logistic(), federation), seed=3)
    engine.device, engine.native = torch.device("meta"), True
    watched = Watched(engine, Progress())
    for name in Engine.__annotations__:
        assert getattr(watched, name) is getattr(engine, name), name
