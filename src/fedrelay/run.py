"""The run: start, advance by one round, and the loop that repeats it."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from fedrelay import costs, seeds
from fedrelay.errors import BadInput, RunFailed
from fedrelay.types import Algorithm, Baton, Chain, Drop, Engine, Outcome, Report, State, Vector, Work


def train(algorithm: Algorithm, engine: Engine, *, rounds: int, state: State | None = None) -> Iterator[State]:
    """Every state after a round, up to round `rounds`; from the beginning, or on from `state`."""
    if state is None:
        state = start(algorithm, engine)
    while state.round < rounds:
        state = advance(algorithm, engine, state)
        yield state


def start(algorithm: Algorithm, engine: Engine) -> State:
    """The state before the first round; clients remember nothing of an earlier run."""
    if algorithm.pooled and len(engine.sizes) > 1:
        raise BadInput("the centralised reference trains on pooled data: give it a federation.pooled() of one client")
    engine.remember(0, {})
    params = engine.task.init(engine.seed)

    def probe(work: Work) -> Sequence[Report | Drop]:
        chains = [Chain(Baton(params), (client,)) for client in range(len(engine.sizes))]
        outcomes = engine.run(work, chains, {}, 0)
        return [outcome.reports[0] if outcome.reports else outcome.dropped[0] for outcome in outcomes]

    memo = algorithm.plan.init(probe, engine.sizes, seeds.rng(engine.seed, "plan"))
    shared, server = algorithm.merge.init(params, len(engine.sizes))
    return State(0, (Baton(params),) * algorithm.slots, shared, server, memo)


def advance(algorithm: Algorithm, engine: Engine, state: State) -> State:
    """One round: plan, relay, merge."""
    began = time.perf_counter()
    round = state.round + 1
    memo, chains = algorithm.plan(state, seeds.rng(engine.seed, "plan", round))
    check(chains, round)
    outcomes = list(engine.run(algorithm.update, chains, state.shared, round))
    good = [outcome for outcome in outcomes if outcome.reports]
    if not good:
        raise RunFailed(every_chain_failed(round, outcomes))
    ready, waiting = algorithm.barrier(state, good)
    known = replace(state, memo=algorithm.plan.learn(memo, outcomes))
    merged = algorithm.merge(known, ready) if ready else known
    paid = costs.Traffic() if algorithm.pooled else costs.traffic(outcomes, deployed(state), state.shared)
    log = {**describe(round, outcomes), **paid.log(), "seconds": time.perf_counter() - began}
    after = replace(merged, round=round, waiting=tuple(waiting), log=log)
    engine.commit(round)
    return after


def deployed(state: State) -> Vector:
    """The model one would use now."""
    return state.batons[0].params


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


def describe(round: int, outcomes: Sequence[Outcome]) -> dict[str, object]:
    """What a round did."""
    reports = [report for outcome in outcomes for report in outcome.reports]
    examples = sum(report.examples for report in reports)
    losses = [(report.metrics["loss"], report.examples) for report in reports if "loss" in report.metrics]
    return {
        "round": round,
        "train_loss": sum(loss * n for loss, n in losses) / sum(n for _, n in losses) if losses else None,
        "clients": len({report.client for report in reports}),
        "chains": len(outcomes),
        "drops": [
            {"client": drop.client, "chain": number, "hop": drop.hop, "reason": drop.reason}
            for number, outcome in enumerate(outcomes)
            for drop in outcome.dropped
        ],
        "depth": costs.depth(outcomes),
        "examples": examples,
    }


def every_chain_failed(round: int, outcomes: Sequence[Outcome]) -> str:
    """Names the clients and reasons, the same reason once."""
    reasons: dict[str, list[int]] = {}
    for outcome in outcomes:
        for drop in outcome.dropped:
            reasons.setdefault(drop.reason, []).append(drop.client)
    named = "; ".join(
        f"client{'s' if len(who) > 1 else ''} {', '.join(map(str, who[:10]))}{' …' if len(who) > 10 else ''}: {reason}"
        for reason, who in reasons.items()
    )
    return f"round {round}: every chain failed, so there is nothing to merge ({named})"
