"""What runs found, to go on with: tidy frames of pandas, and how a notebook shows them."""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.report import measures
from fedrelay.report.rows import Row, as_frame
from fedrelay.runs.folder import CONFIG, Run, load
from fedrelay.runs.results import read_clients, rows_of
from fedrelay.system import notebook

DEEPEST = 4
"""Folders below a given one in which runs are looked for: a paper's item has panels, runs and seeds."""


@dataclass(frozen=True)
class Results:
    """Runs side by side. Every frame begins with the run's name, its method and its seed.

    A notebook shows it as a table, means over seeds, with the curves below.
    """

    runs: tuple[Run, ...]

    @property
    def rounds(self) -> Any:
        """One row for every round: its metrics, what it sent, and what had been sent by then."""
        metrics = tuple(dict.fromkeys(name for run in self.runs for log in run.rounds for name in log.metrics))
        return as_frame([row for key, run in self._keyed() for row in round_rows(key, run, metrics)])

    @property
    def summaries(self) -> Any:
        """One row for every run and seed; of one that has not ended, what there is."""
        return as_frame([{**key, **summary_row(run)} for key, run in self._keyed()])

    @property
    def clients(self) -> Any:
        """One row for every client that has a test part, of every run that has ended."""
        found = [(key, read_clients(run.folder)) for key, run in self._keyed() if run.summary is not None]
        return as_frame([{**key, **row} for key, each in found if each is not None for row in rows_of(each)])

    def _keyed(self) -> Iterator[tuple[Row, Run]]:
        for name, run in zip(names(self.runs), self.runs, strict=True):
            yield {"run": name, "method": measures.algorithm(run), "seed": measures.planned_seed(run)}, run

    def __repr__(self) -> str:
        found = dict.fromkeys(names(self.runs))
        return f"Results of {len(self.runs)} runs: {', '.join(found)}"

    def _repr_html_(self) -> str:
        by, shares = measures.headline(self.runs), measures.shares(self.runs)
        together: dict[str, list[Run]] = {}
        for name, run in zip(names(self.runs), self.runs, strict=True):
            together.setdefault(name, []).append(run)
        judged = f"final {measures.words(by.name)}"
        steps = [f"rounds to {measures.share_text(share)}" for share in shares]
        rows = []
        for name, runs in together.items():
            cells: list[object] = [name, measures.algorithm(runs[0]), len(runs)]
            cells.append(over([measures.final(run, by) for run in runs], lambda value: measures.figure(value, by)))
            cells += [over([measures.rounds_to(run, share) for run in runs], "{:.0f}".format) for share in shares]
            cells.append(measures.size(statistics.fmean(measures.total(run, "bytes") for run in runs)))
            rows.append([*cells, "" if all(run.summary for run in runs) else "not finished"])
        columns = ["run", "method", "seeds", judged, *steps, "sent", ""]
        drawn = {name: mean_curve(runs, by.name) for name, runs in together.items()}
        title = f"{len(self.runs)} runs"
        return notebook.table(title, columns, rows) + notebook.curves(drawn, across="round", up=measures.words(by.name))


def results(*folders: Path | str) -> Results:
    """The runs in these folders, and in the folders of comparisons: frames of pandas, and a picture in a notebook."""
    if not folders:
        raise BadInput('which runs? name their folders, or that of a comparison: fr.results("runs/compare")')
    found = {path.resolve(): path for folder in folders for path in runs_below(Path(folder))}
    return Results(tuple(load(path) for path in found.values()))


def runs_below(folder: Path) -> list[Path]:
    """The folder itself, if it is a run's; otherwise those below it."""
    if (folder / CONFIG).is_file() or not folder.is_dir():
        return [folder]  # what is no folder is refused by whoever reads it
    places = [place for depth in range(1, DEEPEST + 1) for place in folder.glob("*/" * depth + CONFIG)]
    if not places:
        raise BadInput(
            f"there is no run in {folder.resolve()}: name a folder that `fedrelay run` or `compare` has made"
        )
    return sorted(place.parent for place in places)


def names(runs: Sequence[Run]) -> list[str]:
    """What runs are called; the seeds of one run have one name."""
    bases = [run.folder.resolve() for run in runs]
    bases = [base.parent if re.fullmatch(r"seed-\d+", base.name) else base for base in bases]
    once = list(dict.fromkeys(bases))
    alike = [replace(runs[bases.index(base)], name=base.name, folder=base) for base in once]
    called = dict(zip(once, measures.labels(alike), strict=True))
    return [called[base] for base in bases]


def round_rows(key: Row, run: Run, metrics: Sequence[str]) -> Iterator[Row]:
    """A round that was not tested has no metrics."""
    sent, hops, clock = measures.traffic(run), measures.hops(run), measures.clock(run)
    for place, log in enumerate(run.rounds):
        yield {
            **key,
            "round": log.round,
            **{name: number(log.metrics.get(name)) for name in metrics},
            "train_loss": number(log.train_loss),
            "clients": log.clients,
            "chains": log.chains,
            "drops": len(log.drops),
            "bytes": sent[place] - (sent[place - 1] if place else 0),
            "bytes_so_far": sent[place],
            "hops_so_far": hops[place],
            **({"simulated_seconds_so_far": clock[place]} if clock else {}),
            "seconds": log.seconds,
        }


def summary_row(run: Run) -> Row:
    summary = run.summary
    row: Row = {"finished": summary is not None, "rounds": len(run.rounds)}
    if summary is not None:
        figures = {"mean": summary.mean, "best": summary.best, "final": summary.final, "loss": summary.mean_loss}
        figures["target"] = summary.target
        for share, reached in summary.rounds_to.items():
            figures |= {f"rounds_to_{share}": reached, f"bytes_to_{share}": summary.traffic_to.get(share)}
            if measures.clock(run):
                figures[f"simulated_seconds_to_{share}"] = summary.time_to.get(share)
        row |= {"metric": summary.metric, **{name: number(value) for name, value in figures.items()}}
    drops = sum(len(log.drops) for log in run.rounds)
    totals = {"bytes": measures.total(run, "bytes"), "messages": measures.total(run, "messages")}
    return {**row, **totals, "drops": drops, "seconds": measures.seconds(run), "folder": str(run.folder)}


def number(value: float | None) -> float:
    """What is not there is no number, so that a column of numbers stays one."""
    return math.nan if value is None else float(value)


def over(values: Sequence[float | None], written: Callable[[float], str]) -> str | None:
    """Mean ± deviation over seeds; None if some seed never got there."""
    found = [float(value) for value in values if value is not None]
    if not found or len(found) < len(values):
        return None
    mean = written(statistics.fmean(found))
    return mean if len(found) == 1 else f"{mean} ± {written(statistics.stdev(found))}"


def mean_curve(runs: Sequence[Run], metric: str) -> list[tuple[float, float]]:
    """Over the seeds, of every round that all of them have tested."""
    by_round: dict[int, list[float]] = {}
    for run in runs:
        for log in run.rounds:
            value = log.metrics.get(metric)
            if value is not None:
                by_round.setdefault(log.round, []).append(value)
    return [(round, statistics.fmean(found)) for round, found in sorted(by_round.items()) if len(found) == len(runs)]
