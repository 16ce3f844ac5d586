"""What runs came to as a table for LaTeX: one row a method, over its seeds, the best of each column bold (booktabs)."""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fedrelay.report import measures
from fedrelay.report.federations import apart
from fedrelay.report.repeats import Repeat, repeats
from fedrelay.runs.folder import Run
from fedrelay.tasks import Headline

SPECIAL = {
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "–": "--",
    "±": r"$\pm$",
    "×": r"$\times$",
    "…": r"\dots{}",
    "\u202f": r"\,",
}
SIGNS = re.compile("|".join(map(re.escape, SPECIAL)))


@dataclass(frozen=True)
class Measured:
    """One column: what it is called, of which run it is what, how that is written, and whether more is better."""

    title: str
    of: Callable[[Run], float | None]
    text: Callable[[float | None], str]
    sign: int


def escaped(text: str) -> str:
    """Text as LaTeX prints it."""
    return SIGNS.sub(lambda found: SPECIAL[found[0]], re.sub(r"[\r\n\t]+", " ", text))


def latex(runs: Sequence[Run]) -> str:
    """One table for every federation."""
    names = measures.labels(runs)
    tables = []
    for one in apart(runs):
        mine, called = [runs[place] for place in one.places], [names[place] for place in one.places]
        tables.append(table(mine, repeats(mine, called), one.words))
    return "% needs \\usepackage{booktabs}\n" + "\n".join(tables)


def table(runs: Sequence[Run], together: Sequence[Repeat], words: str) -> str:
    columns = measured(runs)
    values = [[[column.of(runs[place]) for place in one.places] for one in together] for column in columns]
    cells = [written(runs, together, column, each) for column, each in zip(columns, values, strict=True)]
    seeds = max(len(one.places) for one in together)
    over = f" Mean $\\pm$ standard deviation over {seeds} seeds." if seeds > 1 else ""
    by = measures.headline(runs)
    targets = measures.targets(runs)
    goal = f" of the target ({measures.figure(targets[0], by)})" if len(targets) == 1 else " of its target"
    costs = f" and costs up to shares{goal}" if len(columns) > 1 else ""
    caption = escaped(f"{measures.judged_on(runs)} {measures.words(by.name)}{costs} on {words}.")
    rows = [" & ".join([escaped(one.name), *(column[row] for column in cells)]) for row, one in enumerate(together)]
    head = " & ".join(["Method", *(escaped(column.title) for column in columns)])
    return "\n".join(
        [
            *("\\begin{table}", "  \\centering", f"  \\caption{{{caption}{over}}}"),
            *(f"  \\begin{{tabular}}{{l{'r' * len(columns)}}}", "    \\toprule", f"    {head} \\\\", "    \\midrule"),
            *(f"    {row} \\\\" for row in rows),
            *("    \\bottomrule", "  \\end{tabular}", "\\end{table}", ""),
        ]
    )


def measured(runs: Sequence[Run]) -> list[Measured]:
    """The headline, and what it took to each share of the target that some run reached."""
    by = measures.headline(runs)
    sign = 1 if by.higher_is_better else -1
    name = measures.words(by.name)
    mean = " (mean of last)" if any(measures.mean_of_last(run, by) is not None for run in runs) else ""
    found = [
        Measured(f"{name[:1].upper()}{name[1:]}{mean}", partial(last_of, by=by), partial(measures.figure, by=by), sign)
    ]
    for share in measures.shares(runs):
        if any(measures.rounds_to(run, share) is not None for run in runs):
            at = measures.share_text(share)
            found += [
                Measured(f"Rounds to {at}", partial(measures.rounds_to, share=share), measures.count, -1),
                Measured(f"Traffic to {at}", partial(measures.traffic_to, share=share), measures.size, -1),
            ]
    return found


def last_of(run: Run, by: Headline) -> float | None:
    """The mean of the last tests; nothing while the run is going."""
    value = measures.mean_of_last(run, by)
    return measures.final(run, by) if value is None and run.summary is not None else value


def written(
    runs: Sequence[Run], together: Sequence[Repeat], column: Measured, values: Sequence[Sequence[float | None]]
) -> list[str]:
    """The cells of a column; where not all seeds have a value there is none, and how many have is said."""
    means: dict[int, float] = {}
    texts = []
    for row, (one, each) in enumerate(zip(together, values, strict=True)):
        known = [value for value in each if value is not None]
        if len(known) < len(each):
            texts.append(escaped(f"– ({len(known)}/{len(each)})" if known else "–"))
            continue
        mean = statistics.fmean(known)
        apart_by = f" ± {column.text(statistics.stdev(known))}" if len(known) > 1 else ""
        texts.append(escaped(column.text(mean) + apart_by))
        if not measures.is_reference(runs[one.places[0]]):
            means[row] = column.sign * mean
    best = max(means.values(), default=None)
    racing = sum(not measures.is_reference(runs[one.places[0]]) for one in together)
    leading = {row for row, value in means.items() if value == best} if racing > 1 else set()
    return [f"\\textbf{{{text}}}" if row in leading else text for row, text in enumerate(texts)]
