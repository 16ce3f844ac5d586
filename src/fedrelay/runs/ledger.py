"""The account of privacy: what every client has released so far, and the epsilon that adds up to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import fields, is_dataclass

import numpy as np

from fedrelay.errors import BadInput
from fedrelay.system.sequences import Integers
from fedrelay.types import Algorithm, Chain, Trait, Work
from fedrelay.visits import Training
from fedrelay.visits.accounting import epsilon_of_visits, noise_for_steps, noise_for_visits, worst_epsilon


def traits_in(part: object) -> int:
    """How many traits a plan asks of every client: each is a release."""
    if isinstance(part, Trait):
        return 1
    if isinstance(part, tuple):
        return sum(map(traits_in, part))
    if is_dataclass(part) and not isinstance(part, type | Work):
        return sum(traits_in(getattr(part, item.name)) for item in fields(part))
    return 0


def added(releases: Sequence[int], chains: Sequence[Chain], clients: int) -> Integers:
    """What every client has released after these chains: a visit counts when it is planned, because a client that is
    lost may have sent its model before."""
    counts = np.zeros(clients, dtype=np.int64)
    counts[: len(releases)] = np.asarray(releases)
    np.add.at(counts, [client for chain in chains for client in chain.clients], 1)
    return Integers.of(counts)


def spent(algorithm: Algorithm, releases: Sequence[int], sizes: Sequence[int]) -> dict[str, float | None]:
    """For the record: the epsilon of whoever has spent most (None: no end of it), its delta, and the most releases of a
    client."""
    privacy = algorithm.privacy
    if privacy is None:
        return {}
    epsilon = epsilon_of(algorithm, releases, sizes)
    return {
        "epsilon": epsilon if math.isfinite(epsilon) else None,
        "delta": privacy.delta,
        "releases": most(releases),
    }


def most(releases: Sequence[int]) -> int:
    """Of a client."""
    return int(np.max(np.asarray(releases), initial=0))


def epsilon_of(algorithm: Algorithm, releases: Sequence[int], sizes: Sequence[int]) -> float:
    """The largest epsilon that a client has after so many releases of each."""
    privacy = algorithm.privacy
    assert privacy is not None
    if privacy.level == "client":
        return epsilon_of_visits(privacy.noise, most(releases), privacy.delta)
    return worst_epsilon(privacy.noise, drawn(algorithm, releases, sizes), privacy.delta)


def drawn(algorithm: Algorithm, releases: Sequence[int], sizes: Sequence[int]) -> set[tuple[float, int]]:
    """With which probability an example is in a step of its client, and in how many steps it could have been."""
    training = steps_of(algorithm.update)
    found = set()
    alike = np.unique(
        np.stack([np.asarray(releases), np.asarray(sizes)]), axis=1
    )  # once, however many clients there are
    for visits, size in alike.T.tolist():
        left = training.counted(size)
        if visits and left:
            found.add((training.rate(left), visits * training.lengths(left)[0]))
    return found


def steps_of(update: Work) -> Training:
    """The training inside a work that is private at the level of examples."""
    inner = getattr(update, "work", None)  # Defended, or what keeps parts at home
    if isinstance(update, Training):
        return update
    assert isinstance(inner, Work)
    return steps_of(inner)


def check_budget(algorithm: Algorithm, sizes: Sequence[int], rounds: int) -> None:
    """Refuse a run in which a client that is there in every round would spend more than it may."""
    privacy = algorithm.privacy
    if privacy is None or privacy.epsilon is None:
        return
    visits = rounds * algorithm.plan.laps + traits_in(algorithm.plan)
    releases = Integers.of(np.full(len(sizes), visits))
    epsilon = epsilon_of(algorithm, releases, sizes)
    if epsilon <= privacy.epsilon:
        return
    if privacy.level == "client":
        needed = noise_for_visits(privacy.epsilon, visits, privacy.delta)
    else:
        every = drawn(algorithm, releases, sizes)
        needed = max(noise_for_steps(privacy.epsilon, *one, privacy.delta) for one in worst_first(every)[:3])
    cost = f"{epsilon:.4g}" if math.isfinite(epsilon) else "without end"
    raise BadInput(
        f"epsilon = {privacy.epsilon:g} cannot be had with noise = {privacy.noise:g}: {visits} releases of a client "
        f"(rounds, laps and traits) cost up to {cost} at delta = {privacy.delta:g}; noise = {rounded_up(needed)} would "
        "give it, or fewer rounds"
    )


def worst_first(clients: set[tuple[float, int]]) -> list[tuple[float, int]]:
    """Rates and steps, those first that cost most as long as noise is large: it goes as rate · √steps."""
    return sorted(clients, key=lambda one: -one[0] * math.sqrt(one[1]))


def rounded_up(value: float) -> str:
    """To three places, never below."""
    unit = 10.0 ** (math.floor(math.log10(value)) - 2)
    return f"{math.ceil(value / unit - 1e-9) * unit:.4g}"
