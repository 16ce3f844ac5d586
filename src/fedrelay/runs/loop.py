"""The run: start, advance by one round, and the loop that repeats it."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import astuple, replace
from typing import Any

import numpy as np

from fedrelay import seeds
from fedrelay.engines.guard import diverged
from fedrelay.errors import BadInput, Diverged, DroppedClients, RunFailed
from fedrelay.merges import Every
from fedrelay.runs import costs, ledger
from fedrelay.runs.latency import Latency
from fedrelay.runs.log import MOST_ORDERED, Dropped, RoundLog, Undescribed
from fedrelay.runs.surveys import ClientSurvey, at_home, newcomers, with_newcomers
from fedrelay.runs.threat import hits_of
from fedrelay.system.devices import deterministic, placed, title
from fedrelay.system.sequences import Integers
from fedrelay.system.threads import operator_threads
from fedrelay.tasks import OneModel, OwnModels, PerClient, Predictor, Task
from fedrelay.types import (
    BOUNDED,
    LAST_GLOBAL,
    POOL_DISTANCES,
    SKIPPED,
    Algorithm,
    Baton,
    Chain,
    Engine,
    Merge,
    Outcome,
    Report,
    State,
    Tree,
    Work,
)
from fedrelay.vectors import blend, is_finite


def train(
    algorithm: Algorithm,
    engine: Engine,
    *,
    rounds: int,
    state: State | None = None,
    latency: Latency | None = None,
    other_device: bool = False,
) -> Iterator[State]:
    """Every state after a round, up to round `rounds`; from the beginning, or on from `state`. With a latency, states
    have a virtual clock. The first clients that are lost raise a warning (`DroppedClients`), and the run goes on. A
    state that another device has computed is refused, unless `other_device` says that it is wanted."""
    check_rounds(algorithm, rounds)
    ledger.check_budget(algorithm, engine.sizes, rounds)
    state = start(algorithm, engine, latency) if state is None else moved(state, engine, other_device=other_device)
    warned = False
    while state.round < rounds:
        state = advance(algorithm, engine, state, latency)
        if not warned and state.log is not None and state.log.drops:
            warnings.warn(lost_clients(state.log), DroppedClients, stacklevel=2)
            warned = True
        yield state


def moved(state: State, engine: Engine, *, other_device: bool) -> State:
    """The state with its models where the engine's are; what plans remember stays in main memory."""
    here = title(engine.device)
    if state.device != here and not other_device:
        raise BadInput(
            f"this run was computed on {state.device} up to round {state.round} and would go on on {here}: the result "
            "would have the bits of neither; go on there, or say that it is wanted: --other-device, in Python "
            "other_device=True"
        )
    there = {name: placed(getattr(state, name), engine.device) for name in ("batons", "shared", "server", "waiting")}
    return replace(state, device=here, **there)


def check_rounds(algorithm: Algorithm, rounds: int) -> None:
    """Refuse more rounds than the method has."""
    most = algorithm.plan.rounds
    if most is not None and rounds > most:
        raise BadInput(f"this method, with these settings, is done after {most} rounds: rounds = {most}, not {rounds}")


def start(algorithm: Algorithm, engine: Engine, latency: Latency | None = None) -> State:
    """The state before the first round; clients remember nothing of an earlier run. With a latency, its clock says how
    long it took to describe the clients."""
    if algorithm.pooled and len(engine.sizes) > 1:
        raise BadInput("the centralised reference trains on pooled data: give it a federation.pooled() of one client")
    if adapted(algorithm, engine.task) != engine.task:
        raise BadInput(
            "this method adds to the model: give the engine the task that run.adapted(algorithm, task) returns"
        )
    told = engine.prepared is not None and any(engine.prepared.messages)
    if told and algorithm.privacy is not None and algorithm.privacy.noise:
        raise BadInput(
            "clients tell statistics of their tables, so that columns can be prepared, and no noise hides them: "
            "bring data that is prepared already, or leave privacy out"
        )
    merge = algorithm.merge.fitted(engine.task, engine.seed)
    threat = None if algorithm.threat is None else algorithm.threat.fitted(engine.task)
    engine.remember(0, {})
    params = engine.task.init(engine.seed).to(engine.device)
    pace = None if latency is None or algorithm.pooled else latency.draw(len(engine.sizes), engine.seed)
    joined = tuple(engine.joined())
    sizes, joined = joined or engine.sizes, joined if 0 in joined else ()
    update = algorithm.update
    survey = ClientSurvey(engine, params, pace, home=update.at_home(engine.task), joined=joined, update=update)
    memo = algorithm.plan.init(survey, sizes, seeds.rng(engine.seed, "plan"))
    shared, server = merge.init(params, len(engine.sizes))
    return State(
        0,
        (Baton(params),),
        shared,
        server,
        memo,
        clock=survey.seconds,
        trainable=engine.task.layout.trainable,
        examples=examples_counted(algorithm.update, sizes),
        described=astuple(costs.preparing(engine.prepared) + survey.traffic),
        joined=joined,
        told=survey.told,
        attackers=() if threat is None else threat.attackers(memo, len(engine.sizes), engine.seed),
        device=title(engine.device),
    )


def examples_counted(update: Work, sizes: Sequence[int]) -> int:
    """How many examples of all clients count; every size is asked for once, however many clients have it."""
    different, times = np.unique(np.asarray(sizes), return_counts=True)
    return sum(
        update.counted(size) * often for size, often in zip(different.tolist(), times.tolist(), strict=True) if size
    )


def adapted(algorithm: Algorithm, task: Task) -> Task:
    """The task as the method's update asks for it (FedFusion adds a module); a model that lacks a part is refused."""
    return algorithm.update.adapt(task)


@operator_threads(1)  # the server's sums are short: a second thread would only take its core from a worker
def advance(algorithm: Algorithm, engine: Engine, state: State, latency: Latency | None = None) -> State:
    """One round: plan, relay, merge."""
    began, before = time.perf_counter(), state
    round = state.round + 1
    state = with_newcomers(algorithm, engine, state)
    planned = algorithm.plan(state, seeds.rng(engine.seed, "plan", round))
    if not planned.server_only:
        check(planned.chains, round)
        if not state.round and algorithm.barrier is None:
            check_promise(algorithm.merge, len(planned.chains))
    threat = None if algorithm.threat is None else algorithm.threat.fitted(engine.task)
    hops = {} if threat is None else threat.hops(planned.chains, state.attackers, round, engine.seed)
    work = algorithm.update if threat is None else threat.work(algorithm.update, hops, len(planned.chains))
    shared = shared_with(algorithm.update, state)
    running = () if planned.server_only else engine.run(work, planned.chains, shared, round)
    outcomes = list(running)
    home = at_home(algorithm.update.at_home(engine.task), engine.task)
    pace = None if latency is None or algorithm.pooled else latency.draw(len(engine.sizes), engine.seed)
    if pace is not None:
        how = {"relayed": algorithm.relayed, "serverless": algorithm.serverless}
        outcomes = pace.timed(outcomes, state, home=home, **how)
    good = [outcome for outcome in outcomes if outcome.reports]
    if not good and not state.waiting and not planned.server_only:
        why = engine.why_stop(round) if algorithm.plan.asks_again else ""
        if why is not None:
            raise every_chain_failed(round, outcomes, why)
    ready, waiting = (good, ()) if algorithm.barrier is None else algorithm.barrier(state, good)
    merge = algorithm.merge.fitted(engine.task, engine.seed)
    merging = merge if threat is None else threat.merge(merge)
    exchanges, model = merge.exchanges(state), state.batons[0].params
    # Whoever waits for every chain also waits for one that is lost, until it is known to be.
    awaited = outcomes if algorithm.barrier is None or not ready else ready
    clock = max((outcome.finished_at for outcome in awaited), default=state.clock)
    clock += 0.0 if pace is None else pace.exchanging(exchanges, costs.size_of(model, home))
    back = [*ready, *(outcome for outcome in outcomes if not outcome.reports)]  # who is late teaches nothing yet
    memo = algorithm.plan.learn(planned, back)
    slots = max([state.slots if state.waiting else 1, *(1 + chain.slot for chain in planned.chains)])
    known = replace(state, memo=memo, waiting=tuple(waiting), clock=clock, groups=planned.groups, slots=slots)
    with deterministic(engine.device):
        merged = merging(known, ready) if ready or planned.server_only else known
    if not all(is_finite(baton.params) for baton in merged.batons):
        raise Diverged(f"round {round}: the merge made a non-finite model; a smaller server step or lr may help")
    releases = released(algorithm, engine, state, planned.chains)
    there = {report.client for outcome in outcomes for report in outcome.reports}
    sent = traffic_of(algorithm, outcomes, state, home)
    if exchanges:
        sent += costs.exchanged(exchanges, model, home)
    log = log_of(
        round,
        outcomes,
        sent,
        privacy=ledger.spent(algorithm, releases, engine.sizes),
        defence={**told_of_defences(outcomes), **merging.tells(known, ready)},
        kept=tuple(client for client in range(len(engine.sizes)) if client not in there) if exchanges else (),
        groups=planned.groups,
        sampling=dict(planned.sampling),
        undescribed=tuple(Undescribed(*missing) for missing in planned.undescribed),
        joined=newcomers(before, state),
        simulated_seconds=None if pace is None else clock - began_at(state),
        seconds=time.perf_counter() - began,
        attacked=hits_of(hops, outcomes),
    )
    after = replace(merged, round=round, log=log, participants=tuple(sorted(there)), described=(), releases=releases)
    engine.commit(round)
    return after


def released(algorithm: Algorithm, engine: Engine, state: State, chains: Sequence[Chain]) -> Sequence[int]:
    """How often every client has released something by the end of this round; nothing is counted without privacy."""
    if algorithm.privacy is None:
        return ()
    clients = len(engine.sizes)
    before = state.releases or Integers.of(np.full(clients, ledger.traits_in(algorithm.plan)))
    return ledger.added(before, chains, clients)


def shared_with(update: Work, state: State) -> Tree:
    """What the server tells every client in the coming round."""
    return {**state.shared, LAST_GLOBAL: state.batons[0].params} if update.reads_global else state.shared


def told_of_defences(outcomes: Sequence[Outcome]) -> dict[str, float]:
    """How many hops were shortened, and how many models not gone on with; nothing where nobody looks."""
    reports = [report for outcome in outcomes for report in outcome.reports]
    return {
        name: sum(report.metrics.get(name, 0.0) for report in reports)
        for name in (BOUNDED, SKIPPED)
        if any(name in report.metrics for report in reports)
    }


def deployed(state: State, algorithm: Algorithm | None = None, engine: Engine | None = None) -> Predictor:
    """What one would use now: as the method says, or else the baton, or the mean of several by the weight they have
    gathered. With the engine, whose clients remember what stays at home, every client has its own."""
    if algorithm is not None and algorithm.predictor is not None:
        return algorithm.predictor(state)
    common = blend(state.batons)
    places = () if algorithm is None or engine is None else algorithm.update.at_home(engine.task)
    if engine is None or not places:
        count = len(state.batons)
        return OneModel(common, f"the mean of {count} models") if count > 1 else OneModel(common)
    return PerClient(common, OwnModels(common, places, engine.memories()[1]))


def traffic_of(
    algorithm: Algorithm, outcomes: Sequence[Outcome], state: State, home: costs.Home = costs.EVERYTHING_LEAVES
) -> costs.Traffic:
    """What the round sent, with what was sent before it to describe clients; a centralised one sends nothing."""
    if algorithm.pooled:
        return costs.Traffic()
    model, how = state.batons[0].params, {"relayed": algorithm.relayed, "serverless": algorithm.serverless}
    sent = costs.traffic(outcomes, model, shared_with(algorithm.update, state), home=home, **how)
    # States of older versions still have what the first round has counted.
    return sent if state.round and not state.joined else costs.Traffic(*state.described) + sent


def began_at(state: State) -> float:
    """When the round after this state began, on the virtual clock; the first one begins with the describing."""
    return state.clock if state.round else 0.0


def check(chains: Sequence[Chain], round: int) -> None:
    """A client in two chains of one round is refused: its memory would race."""
    seen: dict[int, int] = {}
    for number, chain in enumerate(chains):
        for client in set(chain.clients):
            if seen.setdefault(client, number) != number:
                raise RunFailed(
                    f"round {round}: the plan put client {client} into two chains, {seen[client]} and {number}"
                )
    if not chains:
        raise RunFailed(f"round {round}: the plan made no chain")


def check_promise(merge: Merge, chains: int) -> None:
    """Refuse, before anybody has trained, a merge whose promise needs more chains than a round has."""
    if chains < merge.least_chains:
        needs = f" ({merge.condition})" if merge.condition else ""
        inner = merge.merge if isinstance(merge, Every) else merge
        raise BadInput(
            f"{inner} needs at least {merge.least_chains} chains in a round{needs}, and this run has {chains}: a "
            "larger fraction or shorter chains give more, fewer suspects need fewer"
        )


def log_of(round: int, outcomes: Sequence[Outcome], traffic: costs.Traffic, **more: Any) -> RoundLog:
    """What the chains of a round did and sent, and `more` that there is to say of it."""
    reports, sent = [report for outcome in outcomes for report in outcome.reports], traffic.by_name()
    losses = [(report.metrics["loss"], report.examples) for report in reports if "loss" in report.metrics]
    return RoundLog(
        round=round,
        clients=len({report.client for report in reports}),
        chains=len(outcomes),
        depth=costs.depth(outcomes),
        examples=sum(report.examples for report in reports),
        messages=sent["messages"],
        bytes=sent["bytes"],
        relayed=sent["relayed"],
        describing=sent["describing"],
        train_loss=sum(loss * n for loss, n in losses) / sum(n for _, n in losses) if losses else None,
        order=order_of(outcomes),
        visits=len(reports),
        pool=pool_of(reports),
        drops=tuple(
            Dropped(drop.client, number, drop.hop, drop.reason)
            for number, outcome in enumerate(outcomes)
            for drop in outcome.dropped
        ),
        **more,
    )


def order_of(outcomes: Sequence[Outcome]) -> tuple[tuple[int, ...], ...]:
    """Who trained after whom, unless they are too many to write."""
    chains = tuple(outcome.chain.clients for outcome in outcomes)
    return chains if sum(map(len, chains)) <= MOST_ORDERED else ()


def pool_of(reports: Sequence[Report]) -> dict[str, Any]:
    """The last pool of which somebody has told how far its models are apart; nothing if nobody was asked."""
    told = [report for report in reports if POOL_DISTANCES in report.uplink]
    if not told:
        return {}
    return {"client": told[-1].client, "distances": told[-1].uplink[POOL_DISTANCES].tolist()}


def lost_clients(log: RoundLog) -> str:
    """What a user of Python is told at the first round in which clients are lost."""
    first, others = log.drops[0], len(log.drops) - 1
    more = f", and {others} more in this round" if others else ""
    return (
        f"round {log.round}: client {first.client} was dropped{more}; the run goes on without what they would have "
        f"sent ({first.reason}). This is said once; state.log.drops and rounds.jsonl name all"
    )


MOST_REASONS = 5
MOST_CLIENTS = 10


def every_chain_failed(round: int, outcomes: Sequence[Outcome], why: str = "") -> RunFailed:
    """Names chains, clients and reasons: the same reason once, and only the first few; `why` is what else to say."""
    reasons: dict[str, list[str]] = {}
    for number, outcome in enumerate(outcomes):
        for drop in outcome.dropped:
            reasons.setdefault(drop.reason, []).append(f"chain {number}, client {drop.client}")
    named = [
        f"{'; '.join(who[:MOST_CLIENTS])}{' …' if len(who) > MOST_CLIENTS else ''}: {reason}"
        for reason, who in list(reasons.items())[:MOST_REASONS]
    ]
    more = sum(len(who) for who in list(reasons.values())[MOST_REASONS:])
    named += [f"and {more} more"] if more else []
    drops = [drop for outcome in outcomes for drop in outcome.dropped]
    kind = Diverged if drops and all(map(diverged, drops)) else RunFailed
    more_to_say = f"; {why}" if why else ""
    return kind(f"round {round}: every chain failed, so there is nothing to merge ({'; '.join(named)}){more_to_say}")
