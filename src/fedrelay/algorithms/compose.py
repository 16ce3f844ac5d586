"""Methods joined: who trains after whom from one, how clients train from another, how models are merged from a third.

Every method is what it changes of FedAvg (chains of one, plain training, the mean). Two methods go together as long as
they change different things; pulls at the gradient add up.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, fields, replace
from functools import reduce
from typing import Any, TypeVar

from fedrelay.algorithms.fedavg import fedavg
from fedrelay.errors import BadInput
from fedrelay.merges import Mean, WithAbsent
from fedrelay.merges.barriers import everyone
from fedrelay.merges.every import Every
from fedrelay.plans import Handover, Ring, Singles
from fedrelay.plans.sampling import Full, Original, Sampler, Uniform
from fedrelay.types import Algorithm, Merge, Plan, Work
from fedrelay.visits.pulls import stacked
from fedrelay.visits.sgd import Sgd

Recipe = Callable[..., Algorithm]
Part = TypeVar("Part")


def compose(first: Algorithm, second: Algorithm) -> Algorithm:
    """Both methods at once, or a refusal that says what they both want to decide."""
    if first.pooled or second.pooled:
        raise BadInput("centralized is the reference without federation: it goes together with no other method")
    joined = replace(
        first,
        plan=one_plan(first.plan, second.plan),
        update=one_update(first.update, second.update),
        merge=one_merge(first.merge, second.merge),
        barrier=one_of(first.barrier, second.barrier, plain=everyone, what="which chains a merge waits for"),
        **one_each(first, second),
    )
    check(joined)
    return joined


def one_plan(first: Plan, second: Plan) -> Plan:
    """The plan that is not FedAvg's; a sampler decides among chains of any kind."""
    if isinstance(first, Singles) and isinstance(second, Singles) and first.fraction != second.fraction:
        raise BadInput(f"the fractions differ, {first.fraction} and {second.fraction}: give both methods the same")
    for plan, other in ((first, second), (second, first)):
        if isinstance(other, Singles):
            sampled = with_sampler(plan, other.sampler)
            if sampled is not None:
                return sampled
    raise BadInput(f"both say who trains after whom, {name_of(first)} and {name_of(second)}: only one of them can")


def with_sampler(plan: Any, sampler: Sampler) -> Plan | None:
    """The plan with this sampler, if it has none of its own that is another one."""
    if sampler in (Uniform(), getattr(plan, "sampler", None)):
        return plan  # type: ignore[no-any-return]
    if getattr(plan, "sampler", None) == Uniform():
        return replace(plan, sampler=sampler)  # type: ignore[no-any-return]
    inner = with_sampler(plan.groups, sampler) if isinstance(plan, Handover) else None
    return None if inner is None else replace(plan, groups=inner)


def one_update(first: Work, second: Work) -> Work:
    """The training of both: pulls add up, everything else may be said once."""
    if first == second:
        return first
    if not (isinstance(first, Sgd) and isinstance(second, Sgd)):
        for work, other in ((first, second), (second, first)):
            if isinstance(other, Sgd) and without_additions(other) == other:
                return work
        raise BadInput(
            f"both train in a way of their own, {name_of(first)} and {name_of(second)}: only one of them can"
        )
    if without_additions(first) != without_additions(second):
        raise BadInput(f"the local training differs, {first} and {second}: give both methods the same")
    what = "what is minimised in place of the loss"
    objective = one_of(first.objective, second.objective, plain=None, what=what)
    radius = one_of(first.sam, second.sam, plain=0.0, what="the radius of SAM")
    return replace(first, pull=stacked(first.pull, second.pull), objective=objective, sam=radius)


def without_additions(local: Sgd) -> Sgd:
    """The training without what methods set; all the rest is the user's."""
    return replace(local, pull=None, objective=None, sam=0.0)


def one_merge(first: Merge, second: Merge) -> Merge:
    """The merge that is not the mean; one that happens only now and then takes the other inside."""
    for merge, other in ((first, second), (second, first)):
        if isinstance(merge, Every) and not isinstance(other, Every):
            return replace(merge, merge=one_merge(merge.merge, other))
    plain: Merge = Mean()
    return one_of(first, second, plain=plain, what="how models are merged")


def one_each(first: Algorithm, second: Algorithm) -> dict[str, Any]:
    """Whatever else a method may set: the value that is not the default."""
    rest = {field.name: field.default for field in fields(Algorithm) if field.default is not MISSING}
    return {
        name: one_of(getattr(first, name), getattr(second, name), plain=default, what=name)
        for name, default in rest.items()
    }


def one_of(first: Part, second: Part, *, plain: Part, what: str) -> Part:
    """The one that is not plain; two different ones are refused."""
    if second in (plain, first):
        return first
    if first == plain:
        return second
    raise BadInput(f"both say {what}, {name_of(first)} and {name_of(second)}: only one of them can")


def name_of(part: object) -> str:
    """What a part calls itself, with its settings if they are short."""
    text = repr(part)
    return text if len(text) < 80 else getattr(part, "__name__", type(part).__name__)


def check(algorithm: Algorithm) -> None:
    """Refuse parts that make no sense together."""
    merge = algorithm.merge.merge if isinstance(algorithm.merge, Every) else algorithm.merge
    if isinstance(algorithm.plan, Ring) and getattr(merge, "least_chains", 1) > 1:
        raise BadInput(f"{name_of(merge)} compares several chains, and here all clients are one chain")
    if algorithm.barrier is not everyone and getattr(merge, "needs_everyone", False):
        raise BadInput(
            f"{name_of(merge)} adds up what every client has done, and here chains that are late are given up: "
            "the sum would go wrong for good"
        )
    plan = algorithm.plan.groups if isinstance(algorithm.plan, Handover) else algorithm.plan
    sampler = getattr(plan, "sampler", None)
    if algorithm.barrier is not everyone and isinstance(sampler, Full):
        raise BadInput("the sampler full takes everybody at once, and here groups follow one by one: fraction = 1 does")
    check_absent(algorithm, merge, sampler, getattr(plan, "laps", 1))


def check_absent(algorithm: Algorithm, merge: Merge, sampler: Sampler | None, laps: int) -> None:
    """Counting the old model for whoever was not there needs a merge every round, and everybody counted once."""
    if not isinstance(merge, WithAbsent):
        if isinstance(sampler, Original):
            raise BadInput("the sampler original needs the merge with_absent, which fedavg, fedseq and fedseq2par take")
        return
    if isinstance(algorithm.merge, Every) and algorithm.merge.period != 1:
        raise BadInput("with_absent counts who was there in one round, and here models are merged after several")
    if sampler == Uniform() and laps > 1:
        raise BadInput("with_absent counts the examples of a chain once, and here laps count them several times")


def join(recipes: Mapping[str, Recipe]) -> Recipe:
    """The recipe of several methods at once. Its parameters are those of all of them, those of FedAvg, and the merge.

    What FedAvg knows too (the local training, the fraction, the sampler) goes to everybody, what only one method knows
    to that method; a parameter that means different things in two of them is refused.
    """
    plain = inspect.signature(fedavg, eval_str=True).parameters
    known = {name: inspect.signature(recipe, eval_str=True).parameters for name, recipe in recipes.items()}
    every = {key: parameter for parameters in reversed(known.values()) for key, parameter in parameters.items()}
    draws = all("fraction" in parameters for parameters in known.values())  # centralized draws nobody
    added = {key: p.replace(default=None) for key, p in {**plain, "merge": MERGE}.items() if key not in every and draws}

    def recipe(**values: Any) -> Algorithm:
        for key in values:
            owners = [name for name, parameters in known.items() if key in parameters]
            if len(owners) > 1 and key not in plain:
                raise BadInput(f"{key} is a parameter of {' and of '.join(owners)}: say it to one of them alone")
        parts = [recipe(**only(values, known[name])) for name, recipe in recipes.items()]
        more = {key: value for key, value in values.items() if key in added and value is not None}
        if more:
            parts.append(replace(fedavg(**only(values | more, plain)), **only(more, ["merge"])))
        try:
            joined = reduce(compose, parts)
            check(joined)
            return joined
        except BadInput as error:
            raise BadInput(f"{' + '.join(recipes)}: {error}") from error

    recipe.__signature__ = inspect.Signature([*every.values(), *added.values()])  # type: ignore[attr-defined]
    recipe.__doc__ = "\n\n".join(filter(None, (inspect.getdoc(part) for part in recipes.values())))
    return recipe


MERGE = inspect.Parameter("merge", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Merge | None)


def only(values: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if key in keys}
