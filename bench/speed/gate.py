"""How a contender is asked for rounds: it runs as many as it is told, says how long they took, and waits."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable

MARK = "@@ "


class Gate:
    """Call `tick` after every round (the first is a warm-up); it returns when the next one is wanted."""

    def __init__(self, *, leave: Callable[[], object] = bool, **facts: object) -> None:
        self.facts = facts
        self._leave = leave
        self._left = 0
        self._rounds = 0
        self._began = 0.0
        self._warm = False

    def tick(self) -> None:
        if self._left > 1:
            self._left -= 1
            return
        if self._warm:
            say(seconds=time.perf_counter() - self._began, rounds=self._rounds)
        else:
            self._warm = True
            say(**self.facts)
        line = sys.stdin.readline()
        if not line:
            self._leave()
            os._exit(0)  # whatever threads the contender has
        self._left = self._rounds = int(line)
        self._began = time.perf_counter()


def say(**what: object) -> None:
    print(MARK + json.dumps(what), flush=True)


def counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
