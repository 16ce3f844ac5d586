"""Whether methods differ by more than their seeds: paired over seeds, and said only where there are enough of them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from fedrelay.report import measures
from fedrelay.report.against import Against, methods_of, name_of
from fedrelay.report.repeats import Repeat
from fedrelay.runs.folder import Run
from fedrelay.tasks import Headline

LEAST_SEEDS = 5
"""With fewer, no test is claimed."""
LEVEL = 0.05


@dataclass(frozen=True)
class Pair:
    """One method against the one that all are compared with, over the seeds that both have."""

    name: str
    seeds: int
    difference: float
    """Of the means, in what runs are judged by."""
    low: float | None = None
    high: float | None = None
    """The 95 % interval of the difference by Student's t."""
    t: float | None = None
    wilcoxon: float | None = None
    """p-values, two-sided, adjusted for as many comparisons as there are."""


@dataclass(frozen=True)
class Compared:
    """All methods against one of them."""

    base: str
    pairs: tuple[Pair, ...]
    by: Headline

    @property
    def tested(self) -> bool:
        return any(pair.t is not None for pair in self.pairs)

    def sentences(self) -> list[str]:
        """What was done, and what it can and cannot tell."""
        fewest, most = (of(pair.seeds for pair in self.pairs) for of in (min, max))
        how_many = f"{most} seed{'s' if most != 1 else ''}" if fewest == most else f"{fewest} to {most} seeds"
        said = [
            f"Every method is compared with {self.base}, seed by seed ({how_many}), by the mean of the last tests; a "
            f"positive difference is {'better' if self.by.higher_is_better else 'worse'}."
        ]
        if fewest < LEAST_SEEDS:
            whom = "No test is claimed" if not self.tested else "Where there are fewer seeds, no test is claimed"
            said.append(f"{whom}: that takes at least {LEAST_SEEDS} seeds. A difference may be chance.")
        if self.tested:
            count = sum(pair.t is not None for pair in self.pairs)
            many = (
                f"and adjusted for {count} comparisons by Holm; intervals are not" if count > 1 else "of one comparison"
            )
            said.append(f"p-values are two-sided, of the paired t-test and of Wilcoxon's signed-rank test, {many}.")
            least = [pair.seeds for pair in self.pairs if pair.t is not None]
            if 2 / 2 ** min(least) > LEVEL:
                said.append(
                    f"Wilcoxon's test over {min(least)} seeds cannot give less than {2 / 2 ** min(least):.3g} before "
                    "adjustment, whatever the difference; the t-test takes differences to be normal."
                )
            said.append("It says what other seeds would show on this federation, not what other data would.")
        return said

    def rows(self) -> list[tuple[str, ...]]:
        """As text: name, seeds, difference, interval, both p-values."""
        return [
            (
                *(pair.name, measures.count(pair.seeds), signed(pair.difference, self.by)),
                measures.NONE
                if pair.low is None or pair.high is None
                else f"{signed(pair.low, self.by)} to {signed(pair.high, self.by)}",
                *(p_text(pair.t), p_text(pair.wilcoxon)),
            )
            for pair in self.pairs
        ]


def compared(runs: Sequence[Run], together: Sequence[Repeat], against: Against = Against()) -> Compared | None:
    """Methods over their seeds; None where there are not two of them with two seeds in common. Runs that are not
    finished, and references, take no part."""
    by = measures.headline(runs)
    values: dict[str, dict[int, float]] = {}
    for one in together:
        found = {
            seed: value
            for run in (runs[place] for place in one.places if not measures.is_reference(runs[place]))
            if (seed := measures.planned_seed(run)) is not None
            and (value := measures.mean_of_last(run, by)) is not None
        }
        if len(found) > 1:
            values[one.name] = found
    if len(values) < 2:
        return None
    names = {one.name: name_of(runs[one.places[0]]) for one in together}
    wanted = against.found(methods_of(runs)).speed
    base = next((name for name in values if names[name] == wanted or name == wanted), next(iter(values)))
    pairs = [pair(name, mine, values[base]) for name, mine in values.items() if name != base]
    known = [one for one in pairs if one is not None]
    return Compared(base, tuple(adjusted(known)), by) if known else None


def pair(name: str, mine: dict[int, float], base: dict[int, float]) -> Pair | None:
    """The differences of the seeds that both have; None if these are not two."""
    differences = [mine[seed] - base[seed] for seed in sorted(mine.keys() & base.keys())]
    if len(differences) < 2:
        return None
    mean = math.fsum(differences) / len(differences)
    if len(differences) < LEAST_SEEDS:
        return Pair(name, len(differences), mean)
    if max(differences) == min(differences):  # nothing varies: there is nothing to test against
        return Pair(name, len(differences), mean, mean, mean)
    from scipy import stats  # here, because importing it takes half a second

    found = stats.ttest_1samp(differences, 0.0)
    low, high = found.confidence_interval(0.95)
    ranks = stats.wilcoxon(differences)
    return Pair(name, len(differences), mean, float(low), float(high), float(found.pvalue), float(ranks.pvalue))


def adjusted(pairs: Sequence[Pair]) -> list[Pair]:
    """With the p-values of each test adjusted for all comparisons (Holm 1979)."""
    t, wilcoxon = (holm([getattr(pair, name) for pair in pairs]) for name in ("t", "wilcoxon"))
    return [
        Pair(pair.name, pair.seeds, pair.difference, pair.low, pair.high, t[place], wilcoxon[place])
        for place, pair in enumerate(pairs)
    ]


def holm(values: Sequence[float | None]) -> list[float | None]:
    """The smallest of n p-values times n, the next times n - 1 …; none smaller than the one before, none above 1."""
    known = sorted((value, place) for place, value in enumerate(values) if value is not None)
    found: list[float | None] = [None] * len(values)
    least = 0.0
    for rank, (value, place) in enumerate(known):
        least = max(least, min(1.0, (len(known) - rank) * value))
        found[place] = least
    return found


def signed(value: float, by: Headline) -> str:
    """A difference; of shares, in percentage points."""
    return f"{100 * value:+.2f} points" if by.share else f"{value:+.4g}"


def p_text(value: float | None) -> str:
    if value is None:
        return measures.NONE
    return "< 0.001" if value < 0.001 else f"{value:.3f}"
