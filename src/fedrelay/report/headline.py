"""What a page of runs says in one sentence: who got there in the fewest rounds, and who with the least traffic."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fedrelay.report import effort, measures
from fedrelay.runs.folder import Run
from fedrelay.tasks import LOSS, Headline

FEW = 4
USUAL = ("", "the model")
"""What is tested where nothing needs to be said of it; runs of before there was a choice say nothing."""


def headline(runs: Sequence[Run], names: Sequence[str]) -> str:
    """One sentence, from the largest share of the target that any run reached."""
    racing = _racing(runs, names)
    if measures.once(list(racing.values())):
        return _tested_once(racing)
    share = _furthest(racing)
    return _not_reached(racing) if share is None else _reached(racing, share)


def others(runs: Sequence[Run], names: Sequence[str]) -> str | None:
    """What the finished runs took that the headline does not name; None when there is nobody, or too many to read."""
    racing = _racing(runs, names)
    share = None if measures.once(list(racing.values())) else _furthest(racing)
    if share is None:
        return None
    _, fastest = _fewest(racing, lambda run: measures.rounds_to(run, share))
    _, leanest = _fewest(racing, lambda run: measures.traffic_to(run, share))
    rest = [_took(name, run, share) for name, run in racing.items() if run.summary and name not in fastest + leanest]
    return f"{'; '.join(rest)}." if 0 < len(rest) <= FEW else None


def notes(runs: Sequence[Run], names: Sequence[str]) -> list[str]:
    """What a reader must know before comparing: runs that are still going, targets and work that differ."""
    found = []
    going = [_progress(name, run) for name, run in zip(names, runs, strict=True) if run.summary is None]
    if going:
        found.append(f"Not finished, so not part of the comparison to the target: {_listed(going)}.")
    by, targets = measures.headline(runs), measures.targets(runs)
    unlike = [name for name, run in zip(names, runs, strict=True) if measures.headline_of(run) not in (by, LOSS)]
    if unlike:
        found.append(f"Runs are compared by {measures.words(by.name)}, but {_listed(unlike)} by another figure.")
    if len(targets) > 1:
        span = f"{measures.figure(targets[0], by)} to {measures.figure(targets[-1], by)}"
        found.append(
            f"The runs were measured against different targets ({span}), so rounds and traffic to a share differ."
        )
    tested = {name: run.summary.tested for name, run in zip(names, runs, strict=True) if run.summary}
    if any(text not in USUAL for text in tested.values()):
        texts = dict.fromkeys(text or "the model" for text in tested.values())
        said = [f"{text} ({_some([n for n, t in tested.items() if (t or 'the model') == text])})" for text in texts]
        found.append(f"What was tested: {'; '.join(said)}.")
    for name, run in zip(names, runs, strict=True):
        own = run.summary.target if run.summary else None
        if own is not None and own not in targets and measures.is_reference(run):
            found.append(f"{name} is a reference, and its columns are measured against {measures.figure(own, by)}.")
    return found + effort.notes(runs, names)


def _racing(runs: Sequence[Run], names: Sequence[str]) -> dict[str, Run]:
    """The runs that compete: all but the references, or all when there is nothing else."""
    every = dict(zip(names, runs, strict=True))
    return {name: run for name, run in every.items() if not measures.is_reference(run)} or every


def _furthest(racing: dict[str, Run]) -> str | None:
    """The largest share of the target that any of them reached."""
    for share in reversed(measures.shares(list(racing.values()))):
        if any(measures.rounds_to(run, share) is not None for run in racing.values()):
            return share
    return None


def _took(name: str, run: Run, share: str) -> str:
    rounds, traffic = measures.rounds_to(run, share), measures.traffic_to(run, share)
    if rounds is None:
        return f"{name} did not get there in {_rounds(len(run.rounds))}"
    return f"{name} took {_rounds(rounds)}" + (f" and {measures.size(traffic)}" if traffic is not None else "")


def _reached(racing: dict[str, Run], share: str) -> str:
    rounds, fastest = _fewest(racing, lambda run: measures.rounds_to(run, share))
    traffic, leanest = _fewest(racing, lambda run: measures.traffic_to(run, share))
    by, targets = measures.headline(list(racing.values())), measures.targets(list(racing.values()))
    level = f" ({_level(by.goal(targets[0], float(share)), by)})" if len(targets) == 1 else ""
    goal = f"{_listed(fastest)} reached {measures.share_text(share)} of the target{level}"
    sent = measures.size(traffic)
    if len(racing) == 1:
        return f"{goal} after {_rounds(rounds)}" + (f" and {sent} of traffic." if leanest else ".")
    if not leanest:
        return f"{goal} in the fewest rounds ({rounds})."
    if fastest == leanest:
        return f"{goal} in the fewest rounds ({rounds}) and with the least traffic ({sent})."
    return f"{goal} in the fewest rounds ({rounds}), {_listed(leanest)} with the least traffic ({sent})."


def _tested_once(racing: dict[str, Run]) -> str:
    """Rounds cannot tell runs apart that were tested once: what they reached and what they sent can."""
    best = _not_reached(racing, told_of_target=False)
    sent, leanest = _fewest(racing, lambda run: measures.total(run, "bytes") if run.rounds else None)
    if not sent or len(leanest) == len(racing):
        return best
    return f"{best.removesuffix('.')}; {_some(leanest)} sent the least ({measures.size(sent)})."


def _not_reached(racing: dict[str, Run], *, told_of_target: bool = True) -> str:
    by = measures.headline(list(racing.values()))
    merit, leading = _fewest(racing, lambda run: _demerit(run, by))
    if merit is not None and by != LOSS:
        shares, targets = measures.shares(list(racing.values())), measures.targets(list(racing.values()))
        figure = measures.figure(-merit if by.higher_is_better else merit, by)
        judged = "validation " if measures.judged_on(list(racing.values())) == "Validation" else ""
        best = f"{_listed(leading)} has the best {judged}{measures.words(by.name)}: {figure}."
        if told_of_target and shares and len(targets) == 1:
            goal = f"{measures.share_text(shares[0])} of the target ({measures.figure(targets[0], by)})"
            return f"No run reached {goal}; {best}"
        return best
    loss, lowest = _fewest(racing, measures.final_loss)
    if loss is not None:
        judged = measures.judged_on(list(racing.values())).lower()
        return f"{_listed(lowest)} has the lowest {judged} loss: {loss:.4g}."
    return "Nothing has been evaluated yet."


def _fewest(racing: dict[str, Run], of: Callable[[Run], float | None]) -> tuple[float | None, list[str]]:
    """The smallest value and all who have it."""
    values = {name: value for name, run in racing.items() if (value := of(run)) is not None}
    least = min(values.values(), default=None)
    return least, [name for name, value in values.items() if value == least]


def _demerit(run: Run, by: Headline) -> float | None:
    """The run's best figure so that lower is better."""
    best = measures.best(run, by)
    return None if best is None else -by.merit(best)


def _level(value: float, by: Headline) -> str:
    """Such as 72 % accuracy, or an RMSE of 3.2."""
    name = measures.words(by.name)
    return f"{measures.figure(value, by)} {name}" if by.share else f"{name} {measures.figure(value, by)}"


def _rounds(count: float | None) -> str:
    return "1 round" if count == 1 else f"{count} rounds"


def _progress(name: str, run: Run) -> str:
    return f"{name} ({measures.progress(run)})"


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _some(names: Sequence[str]) -> str:
    """All of them, if they are few."""
    return _listed(names) if len(names) <= FEW else f"{names[0]} and {len(names) - 1} more"
