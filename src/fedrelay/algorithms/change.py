"""A method is what it changes of FedAvg; methods joined are their changes joined."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import reduce
from typing import Any, Literal

from fedrelay.algorithms.defence import Defence, defended
from fedrelay.algorithms.privacy import Privacy, made_private
from fedrelay.errors import BadInput
from fedrelay.merges import Every, Mean, WithAbsent
from fedrelay.plans import Singles
from fedrelay.plans.sampling import Full, Original, Sampler, Uniform, Usually, check_fraction
from fedrelay.plans.sampling.sampler import check as check_sampler
from fedrelay.tasks import Predictor
from fedrelay.types import Algorithm, Barrier, Merge, Plan, State, Work
from fedrelay.visits.model_pool import ModelPool, Pooling
from fedrelay.visits.optimisers import Sgd
from fedrelay.visits.private import AtHome, Private
from fedrelay.visits.terms import Term, joined
from fedrelay.visits.training import Training


def part(words: str) -> Any:
    """A part of FedAvg that a method may change, and what it decides, in words."""
    return field(default=None, metadata={"decides": words})


@dataclass(frozen=True)
class Change:
    """What a method changes of FedAvg; None is left as it is. Terms add up, everything else may be said once."""

    plan: Plan | None = part("who trains after whom")
    terms: tuple[Term, ...] = ()
    visit: Callable[[Work], Work] | None = part("what happens in a visit")
    merge: Merge | None = part("how models are merged")
    every: int | Literal["groups"] | None = part("how many rounds there are between two merges")
    barrier: Barrier | None = part("which chains a merge waits for")
    relayed: bool | None = part("whether the server passes on what clients send to one another")
    serverless: bool | None = part("whether there is a server at all")
    pooled: bool | None = part("whether all data is in one place")
    predictor: Callable[[State], Predictor] | None = part("how the result predicts")
    private: Private | None = part("what stays at home")
    pooling: Pooling | None = part("how many models a visit trains")
    fraction: float | None = part("the fraction")
    rounds: int | None = part("how many rounds there usually are")
    local: Training | None = None
    """How clients usually train, where the user does not say; of several methods the first that says it."""

    def __add__(self, other: Change) -> Change:
        """Both at once, or a refusal that says what they both want to decide."""
        if not isinstance(other, Change):
            return NotImplemented
        if self.pooled or other.pooled:
            raise BadInput("centralized is the reference without federation: it goes together with no other method")
        both: dict[str, Any] = {"terms": joined(*self.terms, *other.terms), "local": self.local or other.local}
        for item in fields(Change):
            one, another = getattr(self, item.name), getattr(other, item.name)
            if item.metadata and None not in (one, another) and one != another:
                decides = item.metadata["decides"]
                raise BadInput(f"both say {decides}, {name_of(one)} and {name_of(another)}: only one of them can")
            both.setdefault(item.name, another if one is None else one)
        merging = self if self.merge is not None else other
        if merging.merge is not None and not merging.serverless:  # that is the work of a server
            both["serverless"] = None
        return Change(**both)


def method(
    *changes: Change,
    local: Work | None = None,
    fraction: float | None = None,
    sampler: Sampler = Uniform(),
    merge: Merge | None = None,
    private: str | tuple[str, ...] | None = None,
    defence: Defence | None = None,
    privacy: Privacy | None = None,
) -> Algorithm:
    """FedAvg with these changes: an algorithm that any engine can run.

    Args:
        changes: what recipes return, such as `fedseq(max_clients=10), feddyn()`; none at all is FedAvg.
        local: how clients train; if it is not given, as the methods usually do, or else by `Sgd()`.
        fraction: the share of the clients (or groups) that take part in a round. If it is not given, everybody does
            where there are at most 20 clients; among more it is 0.2, unless a method says another.
        sampler: who is drawn.
        merge: how models are merged, for methods that leave it open.
        private: parts of the model that never leave a client: "norm" (normalisation layers), "head" (the last layer),
            or patterns for the names of parameters. Every client then has a model of its own.
        defence: what is done inside chains against clients that lie.
        privacy: noise at the clients, and what it promises.
    """
    refuse_strangers(changes, local, merge)
    named = (private,) if isinstance(private, str) else tuple(private or ())
    wanted = [*changes]
    if merge is not None or named:
        wanted.append(Change(merge=merge, private=Private(named) if named else None))
    change = reduce(Change.__add__, wanted) if wanted else Change()
    local = local or usual_local(change) or Sgd()
    taking = fraction if fraction is not None else usual_fraction(change)
    check_fraction(taking)
    check_sampler(sampler)
    inner = (change.merge or (WithAbsent() if isinstance(sampler, Original) else Mean())).trained_like(local)
    period = None if change.every == "groups" else change.every
    algorithm = Algorithm(
        plan=(change.plan or Singles()).fitted(fraction=taking, sampler=sampler, local=local),
        update=with_private(updated(local, change), change.private),
        merge=inner if change.every is None else Every(inner, period),
        barrier=change.barrier,
        pooled=bool(change.pooled),
        relayed=bool(change.relayed),
        serverless=bool(change.serverless),
        predictor=change.predictor,
    )
    check(algorithm, inner)
    algorithm = algorithm if privacy is None else made_private(algorithm, privacy)
    return algorithm if defence is None else defended(algorithm, defence)


def usual_fraction(*changes: Change) -> Usually:
    """The fraction of these methods if the user gives none."""
    return next((Usually(change.fraction) for change in changes if change.fraction is not None), Usually())


def usual_local(*changes: Change) -> Training | None:
    """How clients train with these methods if the user does not say; None: by SGD. A method that reads gradients off
    the way a model went needs SGD, whatever another would usually train by."""
    if any(term.reads_steps for change in changes for term in change.terms):
        return None
    return next((change.local for change in changes if change.local is not None), None)


def usual_rounds(*changes: Change) -> int | None:
    """How many rounds these methods usually have; None: no method says."""
    return next((change.rounds for change in changes if change.rounds is not None), None)


def refuse_strangers(changes: tuple[Change, ...], local: Work | None, merge: Merge | None) -> None:
    """Refuse what is no part of a method: most often a function or a class without its parentheses."""
    for value, kind, wanted in (
        *((change, Change, "a method takes changes, such as fedseq(max_clients=10)") for change in changes),
        (local, Work | None, "local must be a training, such as Sgd(lr=0.1)"),
        (merge, Merge | None, "merge must be a merge, such as Median()"),
    ):
        if not isinstance(value, kind):
            raise BadInput(f"{wanted}, not {name_of(value)}")


def with_terms(local: Work, terms: tuple[Term, ...]) -> Work:
    """The local training with what the methods add to it."""
    if terms and not isinstance(local, Training):
        raise BadInput(f"{name_of(local)} trains in a way of its own, so {name_of(terms[0])} cannot be added to it")
    return replace(local, terms=(*local.terms, *terms)) if isinstance(local, Training) else local


def with_pool(update: Work, pooling: Pooling | None) -> Work:
    """The work of a visit, for every model of a pool."""
    if pooling is None:
        return update
    if not isinstance(update, Training):
        raise BadInput(f"{name_of(update)} trains in a way of its own, so no pool of models can be trained by it")
    return ModelPool(update, pooling)


def updated(local: Work, change: Change) -> Work:
    """What happens in a visit: the local training, and what the methods make of it."""
    training = with_terms(local, change.terms)
    return with_pool(training if change.visit is None else change.visit(training), change.pooling)


def with_private(update: Work, private: Private | None) -> Work:
    """The work of a visit, with parts of the model that stay at home."""
    return update if private is None else AtHome(update, private)


def name_of(value: object) -> str:
    """What a part calls itself, with its settings if they are short."""
    text = repr(value)
    short = value.__name__ if isinstance(value, type) or (callable(value) and hasattr(value, "__name__")) else None
    return short or (text if len(text) < 80 else type(value).__name__)


def check(algorithm: Algorithm, merge: Merge) -> None:
    """Refuse parts that make no sense together; `merge` is what happens when models are merged at all."""
    plan, sampler, waits = algorithm.plan, algorithm.plan.sampler, algorithm.barrier is None
    if algorithm.predictor is not None and isinstance(algorithm.update, AtHome):
        raise BadInput(
            f"{', '.join(algorithm.update.private.parts)} stays at home, and this method tests whole models: what it "
            "tests must be the mean of the models, if it has that, or nothing may stay at home"
        )
    now_and_then = isinstance(algorithm.merge, Every) and algorithm.merge.period != 1
    if plan.one_chain and merge.least_chains > 1:
        raise BadInput(f"{name_of(merge)} compares several chains, and here all clients are one chain")
    if not waits and merge.needs_everyone:
        raise BadInput(
            f"{name_of(merge)} adds up what every client has done, and here chains that are late are given up: "
            "the sum would go wrong for good"
        )
    if not waits and isinstance(sampler, Full):
        raise BadInput("the sampler full takes everybody at once, and here groups follow one by one: fraction = 1 does")
    if isinstance(sampler, Original) and (now_and_then or not isinstance(merge, WithAbsent)):
        why = (
            "here models of many rounds are merged" if now_and_then else f"{name_of(merge)} says how models are merged"
        )
        raise BadInput(
            f"the sampler original needs the merge with_absent, but {why}: use uniform, which draws the same, or a "
            "method that leaves the merge open in every round (fedavg, fedseq, fedseq2par)"
        )
    if isinstance(merge, WithAbsent) and now_and_then:
        raise BadInput("with_absent counts who was there in one round, and here models are merged after several")
    if isinstance(merge, WithAbsent) and isinstance(sampler, Uniform | Full) and plan.laps > 1:
        raise BadInput("with_absent counts the examples of a chain once, and here laps count them several times")
