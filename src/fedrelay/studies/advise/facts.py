"""What advice rests on: what is known of a federation, its model and its network, before any training."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from fedrelay import config, seeds
from fedrelay.config.experiment import Experiment
from fedrelay.errors import within
from fedrelay.plans.attackers import Spread
from fedrelay.runs.costs import size_of
from fedrelay.runs.latency import BYTES, Latency, Same
from fedrelay.studies.advise import unlike
from fedrelay.studies.advise.round_costs import Line
from fedrelay.visits import Training
from fedrelay.visits.around import Around

By = Literal["traffic", "time", "rounds"]
Reach = Literal["direct", "server", "none"]
Level = Literal["alike", "unlike", "one class"]

ALIKE = 0.3
"""Below this excess of h clients count as alike."""
ONE_CLASS = 0.8
"""From this h on clients count as if each had one class of ten."""
DIVERSE = 1.0
"""From this excess of the gradients' diversity on: what tells clients apart is more than what they share."""
ENOUGH = 0.2
"""Groups whose h is at most this have a mix like that of all."""
PUBLISHED = 10
"""The length of the chains that were published with tuned learning rates."""


@dataclass(frozen=True)
class Wishes:
    """What a configuration does not say.

    `by` is what shall be small; by default time where there is a [latency] section, traffic otherwise. `reach`: clients
    pass models on directly, by way of the server, or not at all. Prices are per byte, in any unit. `server_line` is in
    Mbit/s. `visits` is how often a client comes back in the whole run; by default fraction times rounds. `rounds` is
    what FedAvg needs, if that is known; by default the configuration's.
    """

    by: By | None = None
    state: bool = True
    reach: Reach = "direct"
    server_price: float = 1.0
    link_price: float = 1.0
    server_line: float | None = None
    visits: float | None = None
    rounds: int | None = None

    def __post_init__(self) -> None:
        within("the price of the server's line", self.server_price, least=0)
        within("the price of links", self.link_price, least=0)
        within("one of the two prices", max(self.server_price, self.link_price), above=0)
        if self.server_line is not None:
            within("the server's line", self.server_line, above=0)
        if self.visits is not None:
            within("visits", self.visits, above=0)
        if self.rounds is not None:
            within("FedAvg's rounds", self.rounds, least=1)


@dataclass(frozen=True)
class Facts:
    """A federation in numbers."""

    by: By
    reach: Reach
    state: bool
    clients: int
    classes: int | None
    """None where examples have no one class, or nobody tells."""
    sizes: tuple[int, int, int]
    """Examples of the smallest client, of the one in the middle, of the largest."""
    h: float | None
    by_chance: float | None
    diversity: tuple[float, float] | None
    """Of gradients: of the clients, and of an even split."""
    single: bool
    """Whether most clients have one class."""
    shortest: int | None
    """The shortest chain whose random groups are like all; None where no chain of the published length is."""
    parameters: int
    model_bytes: int
    steps: int
    """Of a visit to the client in the middle."""
    fraction: float
    rounds: int
    """What FedAvg is taken to need."""
    visits: float
    """How often a client comes back."""
    lr: float
    """For clients that train alone."""
    line: Line
    prices: tuple[float, float]
    """Of a byte through the server, and of one between clients."""
    stragglers: float
    """How many times as long as the one in the middle the slowest of twenty clients takes."""
    attackers: float
    """The share of clients that attack."""
    assumed: tuple[str, ...] = ()
    """What was not said, and what was taken instead."""

    @property
    def excess(self) -> float | None:
        """What h is beyond chance."""
        return None if self.h is None or self.by_chance is None else unlike.excess(self.h, self.by_chance)

    @property
    def level(self) -> Level:
        """How unlike clients are, in three steps."""
        if self.clients < 2:
            return "alike"
        if self.excess is None or self.h is None:
            own, even = self.diversity or (0.0, 0.0)
            return "unlike" if own - even > DIVERSE else "alike"
        if self.excess < ALIKE:
            return "alike"
        return "one class" if self.h >= ONE_CLASS or self.single else "unlike"

    @property
    def small(self) -> bool:
        """Whether the model is no larger than the ones of the published tables in which chains did not win."""
        return self.parameters <= SMALL

    @property
    def taking_part(self) -> int:
        """Clients of a round."""
        return max(round(self.fraction * self.clients), 1)

    @property
    def chain(self) -> int:
        """How long chains should be: as those that were published; on the clock, no longer than classes need. Never
        more than take part, and short enough that attackers touch at most half of them."""
        wanted = min(self.shortest or PUBLISHED, PUBLISHED) if self.by == "time" else PUBLISHED
        if 0 < self.attackers < 1:
            wanted = min(wanted, max(int(math.log(0.5) / math.log(1 - self.attackers)), 1))
        return max(min(wanted, self.taking_part), min(2, self.clients))


SMALL = 100_000
"""Parameters: the classic LeNet-5 has 61,706, VGG-9 of the same tables 3.5 million."""
ONE_METHOD = {"name": "fedavg"}
KEPT = ("sampler", "private", "defence", "privacy")
"""What [algorithm] says whatever the method is: it is the user's wish, and no advice takes it away."""
CHAINS = ("fedseq", "fedseqinter", "fedasyncseq", "fedseq2par", "fedcyclic", "fedgsp", "naivegsp", "naivegsp_icg")
"""Methods in which clients train one after another, so that their learning rates are smaller."""


def known(
    tables: Mapping[str, Any], wishes: Wishes = Wishes(), data_dir: Path | str | None = None
) -> tuple[Facts, Experiment]:
    """The facts of a configuration, and the configuration as FedAvg would run it."""
    section = config.section_of(tables, "algorithm")
    kept = {key: value for key, value in section.items() if key in ("fraction", *KEPT)}
    experiment = config.build({**tables, "algorithm": {**ONE_METHOD, **kept}}, data_dir)
    named = str(section.get("name", ""))
    chained = any(part.strip() in CHAINS for part in named.split("+"))
    return facts_of(experiment, wishes, timed="latency" in tables, chained=chained), experiment


def facts_of(experiment: Experiment, wishes: Wishes, *, timed: bool = False, chained: bool = False) -> Facts:
    """What there is to know of this experiment; `chained`: its learning rate is one for chains."""
    federation, task = experiment.federation, experiment.task
    seed, rounds = experiment.engine.seed, int(experiment.tables["rounds"])
    sizes = np.array(federation.sizes)
    told = federation.source.train.classified and federation.source.classes > 1 and not federation.source.elsewhere
    counts = federation.label_counts() if told and len(federation) > 1 else None
    rng = seeds.rng(seed, "advice")
    fraction = float(experiment.tables["algorithm"]["fraction"])
    local = experiment.algorithm.update
    while isinstance(local, Around):  # noise, a defence, parts that stay at home
        local = local.work
    assert isinstance(local, Training)  # FedAvg's
    latency = experiment.latency or Latency(Same(SPEED), Same(BANDWIDTH))
    model = size_of(task.init(seed))
    line, stragglers = line_of(latency, sizes * local.epochs, model, wishes.server_line, seed)
    gradients = None if counts is not None or len(sizes) < 2 else unlike.diversities(federation, task, seed)
    return Facts(
        by=wishes.by or ("time" if timed else "traffic"),
        reach=wishes.reach,
        state=wishes.state,
        clients=len(federation),
        classes=federation.source.classes if told else None,
        sizes=(int(sizes.min()), int(np.median(sizes)), int(sizes.max())),
        h=None if counts is None else unlike.distance(counts),
        by_chance=None if counts is None else unlike.distance_by_chance(counts, rng),
        diversity=gradients,
        single=counts is not None and float(np.median((counts > 0).sum(axis=1))) == 1,
        shortest=None if counts is None else unlike.shortest_chain(counts, ENOUGH, PUBLISHED, rng),
        parameters=task.layout.trainable,
        model_bytes=model,
        steps=local.lengths(int(np.median(sizes)))[0] if local.steps is None else local.steps,
        fraction=fraction,
        rounds=wishes.rounds or rounds,
        visits=wishes.visits or fraction * rounds,
        lr=local.lr * (PUBLISHED if chained else 1),
        line=line,
        prices=(wishes.server_price, wishes.link_price),
        stragglers=stragglers,
        attackers=attacking(experiment),
        assumed=assumptions(experiment, wishes, timed=timed, told=told),
    )


SPEED, BANDWIDTH = 200.0, 20.0
"""Examples a second and Mbit/s: the middle of what [latency] takes where nothing is said."""


def line_of(
    latency: Latency, examples: np.ndarray[Any, Any], model: int, server: float | None, seed: int
) -> tuple[Line, float]:
    """Seconds of the visit and the message in the middle; and how many times as long the slowest of twenty takes."""
    pace = latency.draw(len(examples), seed)
    visits, links = examples / pace.speed, model / pace.bandwidth + latency.delay
    whole = np.sort(visits + 2 * links)
    slow = float(whole[int(0.95 * (len(whole) - 1))] / np.median(whole))
    waiting = latency.away * float(1 - pace.availability.mean())
    served = 0.0 if server is None else model / (server * BYTES)
    return Line(float(np.median(visits)) + waiting, float(np.median(links)), served), slow


def attacking(experiment: Experiment) -> float:
    """The share of clients that attack, as far as the configuration says it."""
    threat = experiment.algorithm.threat
    if threat is None:
        return 0.0
    who = threat.when.who
    return who.share if isinstance(who, Spread) else Spread().share


def assumptions(experiment: Experiment, wishes: Wishes, *, timed: bool, told: bool) -> tuple[str, ...]:
    """What nobody said, in words."""
    found = []
    if not timed:
        found.append(
            f"no [latency] section: every client computes {SPEED:g} examples a second and has {BANDWIDTH:g} Mbit/s"
        )
    if wishes.server_line is None:
        found.append("the server's line is never what one waits for (--server-line says otherwise)")
    if wishes.by is None:
        found.append(f"{'time' if timed else 'traffic'} shall be small (--by says otherwise)")
    if wishes.rounds is None:
        found.append("FedAvg needs all rounds of the configuration to its target (--fedavg-rounds says otherwise)")
    if not told:
        found.append("classes are not known, so clients are compared by the gradients of the first model")
    return tuple(found)
