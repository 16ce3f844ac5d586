"""What a run leaves on record: what every round did, and the figures of the whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from fedrelay.system import notebook

Split = Mapping[str, int]
"""Messages or bytes by direction (`costs.DIRECTIONS`), in a summary with their `total`."""
Part = Mapping[str, int]
"""Some of them: `messages` and `bytes` of one kind."""


MOST_ORDERED = 1000
"""Visits of a round; who trains after whom among more is not written."""


def nothing() -> dict[str, int]:
    """No message of this kind."""
    return {"messages": 0, "bytes": 0}


@dataclass(frozen=True)
class Dropped:
    """A client that was lost from its chain in a round, and why."""

    client: int
    chain: int
    hop: int
    reason: str


@dataclass(frozen=True)
class Hit:
    """A visit in which a client attacked: which one, in which chain of the round, at which place (from 0)."""

    client: int
    chain: int
    hop: int


@dataclass(frozen=True)
class Undescribed:
    """A client of which no trait came back, and why; it is grouped at random."""

    client: int
    reason: str


@dataclass(frozen=True)
class RoundLog:
    """What one round did and cost: one line of rounds.jsonl."""

    round: int
    clients: int
    """Different ones that took part."""
    chains: int
    depth: int
    """The longest chain: hops that had to happen one after another."""
    examples: int
    seconds: float
    messages: Split
    bytes: Split
    relayed: Part = field(default_factory=nothing)
    """Among them, what only passed the server on its way between clients."""
    describing: Part = field(default_factory=nothing)
    """Among them, what told the server about the clients' data, before the first round."""
    train_loss: float | None = None
    """The mean over the clients that took part, on their own data."""
    order: tuple[tuple[int, ...], ...] = ()
    """Who trained after whom: the clients of every chain, those that were lost among them. Empty where there were more
    visits than `MOST_ORDERED`."""
    visits: int = 0
    groups: int = 0
    """Among how many the chains were drawn."""
    drops: tuple[Dropped, ...] = ()
    kept: tuple[int, ...] = ()
    """Where every client has a model of its own: those that went into the merge with the one they had before, because
    they were lost, or not drawn."""
    undescribed: tuple[Undescribed, ...] = ()
    joined: tuple[int, ...] = ()
    """Where not all clients were there when the run began: those that take part from this round on."""
    wire: Mapping[str, Any] = field(default_factory=dict)
    """Where clients are real: bytes to them (`sent`) and back (`received`), by `clients`, and the seconds of all
    `hops`: waiting until the client could be asked, transfer, training. Tests and what describes clients are among
    them."""
    sampling: Mapping[str, float | None] = field(default_factory=dict)
    """What there is to say of the draw."""
    simulated_seconds: float | None = None
    """On the virtual clock, where there is one."""
    classes: int | None = None
    """Different ones among the clients that took part, where that is known."""
    pool: Mapping[str, Any] = field(default_factory=dict)
    """Of the last client that was asked for it: its number (`client`), and how far the models of its pool are from one
    another (`distances`, a row for each)."""
    metrics: Mapping[str, float | None] = field(default_factory=dict)
    """Loss and metrics on the test set; empty if this round was not tested. Not finite is None."""
    over_clients: Mapping[str, float | None] = field(default_factory=dict)
    """Loss and headline on all clients' own examples (`train_loss`, `test_accuracy` …) and their deviations over
    clients; empty if this round was not evaluated so."""
    attacked: tuple[Hit, ...] = ()
    """Who attacked in it, and where."""

    privacy: Mapping[str, float | None] = field(default_factory=dict)
    """Where there is privacy, since the run began: the `epsilon` of the client that has spent most (None: without end),
    its `delta`, and the most `releases` of a client."""
    defence: Mapping[str, float] = field(default_factory=dict)
    """Where chains are defended: how many hops were shortened (`bounded`), models not gone on with (`skipped`), and
    pairs of chains that did not count (`disagreed`)."""

    @property
    def accuracy(self) -> float | None:
        """On the test set, if this round was tested."""
        return self.metrics.get("accuracy")

    @property
    def loss(self) -> float | None:
        """On the test set, if this round was tested."""
        return self.metrics.get("loss")


@dataclass(frozen=True)
class Summary:
    """The figures of a whole run: summary.json."""

    algorithm: str
    rounds: int
    accuracy: float | None
    """The mean of the last tests, as [evaluate] has it; this and the next two are None if accuracy is not among the
    metrics."""
    best_accuracy: float | None
    final_accuracy: float | None
    final_loss: float | None
    jump: float | None
    """The mean difference between one test and the next."""
    classes: float | None
    """The mean number of different classes in a round."""
    target: float | None
    rounds_to: Mapping[str, int | None]
    """By shares of the target; None where it was never reached."""
    traffic_to: Mapping[str, int | None]
    time_to: Mapping[str, float | None]
    messages: Split
    bytes: Split
    relayed: Part
    describing: Part
    parallelism: float | None
    estimates: Mapping[str, float]
    """Time and traffic by FedGSP's formulas."""
    simulated_seconds: float | None
    depth: int
    examples: int
    seconds: float
    examples_per_second: float | None
    drops: int
    params_sha256: str
    metric: str
    """The name of the headline: what the run is judged by. The target and all that it took to reach it are of this
    figure."""
    higher_is_better: bool
    share: bool
    """Whether the headline lies between 0 and 1, and is written in percent."""
    mean: float | None
    """The mean of the last tests, of the headline."""
    best: float | None
    final: float | None
    clients: Mapping[str, float | None] = field(default_factory=dict)
    """How the headline is spread over clients (`quality.Spread`), where they have test parts; clients.json has all."""
    tested: str = ""
    """What was tested, in words: one model, or the mean of several models' figures."""
    calibration_error: float | None = None
    """Expected, on the test set, where classes are told apart."""
    mean_loss: float | None = None
    """On the test set: the mean of the same tests as `mean`."""
    estimates_to: Mapping[str, Mapping[str, float | None]] = field(default_factory=dict)
    """The same as `estimates` when each share of the target was reached: by name, then by share."""
    privacy: Mapping[str, float | None] = field(default_factory=dict)
    """After the last round: epsilon, delta, and the most releases of a client."""
    defence: Mapping[str, float] = field(default_factory=dict)
    """What defences inside chains did, over all rounds."""
    over_clients: Mapping[str, float | None] = field(default_factory=dict)
    """After the last round: loss and headline on all clients' own examples, and their deviations over clients."""
    attacked: Mapping[str, float | None] = field(default_factory=dict)
    """Among attackers: their `visits` in the whole run, and what tells whether the attack works, as the mean of the
    same tests as `mean`. Empty where everybody is honest."""

    def _repr_html_(self) -> str:
        def judged(value: float | None) -> str | None:
            return None if value is None else f"{100 * value:.1f} %" if self.share else f"{value:.4g}"

        shown: dict[str, object] = {
            f"{self.metric}, mean of the last tests": judged(self.mean),
            "best": judged(self.best),
            "rounds": self.rounds,
            **{
                f"rounds to {100 * float(share):g} % of the target": reached
                for share, reached in self.rounds_to.items()
            },
            "sent": f"{self.bytes['total'] / 1e6:,.1f} MB in {self.messages['total']:,} messages",
            "hops one after another": self.depth,
            "clients dropped": self.drops,
            "seconds": f"{self.seconds:.1f}",
        }
        return notebook.facts(f"Summary of {self.algorithm}", shown)
