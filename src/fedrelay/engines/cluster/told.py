"""What workers elsewhere keep and tell of a long round: it goes where it would go if they were here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial

from fedrelay.engines.cluster.sending import received
from fedrelay.engines.cluster.worker import Seen
from fedrelay.engines.pool.worker import Job, Round
from fedrelay.errors import say_once
from fedrelay.types import Place, Tree, Underway


class Told:
    """What is known of one round."""

    def __init__(self, underway: Underway | None) -> None:
        self._underway = underway
        self._figures: dict[str, Mapping[str, tuple[int, int]]] = {}

    def take(self, seen: Seen) -> None:
        """Pass on what a worker has said."""
        self.say(seen.said)
        if self._underway is None:
            return
        for name, (whose, tree) in seen.kept.items():
            self._underway.keep(name, partial(str, whose), partial(received, tree, copy=True), now=True)
        self._figures |= seen.told
        if self._figures:
            self._underway.tell("chains", together(self._figures.values()))

    def say(self, texts: Iterable[str]) -> None:
        for text in texts:
            say_once(text)

    def found(self, round: Round, job: Job, seed: int) -> dict[str, Tree]:
        """What was kept of the chains of a job: by who was killed in this round, or by a worker that was lost."""
        names = () if self._underway is None else self._underway.names()
        found: dict[str, Tree] = {}
        for number in job.numbers if names else ():
            place = round.context.place(round.chains[number], seed)
            if place is not None:
                mine = {name: place.underway.find(name, place.whose) for name in names if belongs(name, place)}
                found |= {name: kept for name, kept in mine.items() if kept is not None}
        return found


def belongs(name: str, place: Place) -> bool:
    """Whether a chain has kept something by this name."""
    return name.startswith(f"{place.name}-")


def together(figures: Iterable[Mapping[str, tuple[int, int]]]) -> dict[str, tuple[int, int]]:
    """How far all chains are: of several only the first figure, because the parts of a visit say nothing then."""
    found = list(figures)
    if len(found) == 1:
        return dict(found[0])
    key = next(iter(found[0]))
    done, of = (sum(part) for part in zip(*(each[key] for each in found if key in each), strict=True))
    return {key: (done, of)}
