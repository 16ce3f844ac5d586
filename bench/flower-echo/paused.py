"""Our ServerApp with the pauses of the empty one before every visit: it is put into the folder of our app."""

from __future__ import annotations

import itertools
import time

from fedrelay.engines.remote.relaying import Pending, Relaying
from fedrelay.remote.flower import server

PAUSE, GOLDEN = 3.0, 0.6180339887498949
VISITS, ASK = itertools.count(), Relaying._ask


def ask(relaying: Relaying, pending: Pending) -> None:
    time.sleep(PAUSE * (next(VISITS) * GOLDEN % 1))
    ASK(relaying, pending)


Relaying._ask = ask
app = server.app
