"""A comparison in one line that can be pasted: who came how far, on what."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fedrelay import __version__, report
from fedrelay.report.measures import figure, words
from fedrelay.report.one_line import federation, rounds
from fedrelay.runs.folder import SUMMARY
from fedrelay.studies.compared import Row, headline
from fedrelay.studies.names import folder_name

MOST = 8
"""So many runs are named."""


def in_one_line(rows: Sequence[Row], out: Path) -> str:
    """Such as `accuracy: fedseq 92.1 %, fedavg 85.0 % on digits, 100 clients, alpha 0, 100 rounds, seed 0, …`; empty if
    no run came to its end. Best first, with mean and deviation over seeds."""
    done = [row for row in rows if row.summaries]
    if not done:
        return ""
    by = headline(done[0].summaries)
    ranked = sorted(done, key=lambda row: -by.merit(row.mean(lambda summary: summary.mean) or 0))
    named = [
        f"{row.name} {row.over_seeds(lambda summary: summary.mean, lambda value: figure(value, by))}" for row in ranked
    ]
    rest = [f"{len(named) - MOST} more"] if len(named) > MOST else []
    runs = [report.load(folder_of(row, out)) for row in done]
    common = list(dict.fromkeys(federation(run.config) for run in runs))
    lasted = sorted({len(run.rounds) for run in runs})
    seeds = sorted({seed for row in done for seed in row.seeds})
    parts = [
        common[0] if len(common) == 1 else f"{len(common)} federations",
        rounds(lasted[0]) if len(lasted) == 1 else f"{lasted[0]} to {lasted[-1]} rounds",
        f"seed{'s' * (len(seeds) > 1)} {', '.join(map(str, seeds))}",
        f"fedrelay {__version__}",
    ]
    return f"{words(by.name)}: {', '.join([*named[:MOST], *rest])} on {', '.join(parts)}"


def folder_of(row: Row, out: Path) -> Path:
    """That of a run, or of its first seed that came to its end."""
    folder = out / folder_name(row.name)
    seeds = [folder / f"seed-{seed}" for seed in row.seeds]
    return next((one for one in seeds if (one / SUMMARY).exists()), folder) if seeds else folder
