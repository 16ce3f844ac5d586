"""A run in one line that can be pasted: what was done, how good it became, what it took."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from fedrelay import __version__
from fedrelay.report import measures
from fedrelay.runs.folder import Run


def one_line(run: Run) -> str:
    """Such as `fedseq on digits, 100 clients, alpha 0: 92.1 % after 100 rounds, 90 % in round 22, 14.5 MB, …`."""
    reached = _reached(run)
    parts = [
        f"{_figure(run)} after {rounds(len(run.rounds))}" + ("" if run.summary else " (not finished)"),
        *([reached] if reached else []),
        measures.size(measures.total(run, "bytes")),
        f"seed {measures.planned_seed(run)}",
        f"fedrelay {__version__}",
    ]
    return f"{measures.algorithm(run)} on {federation(run.config)}: {', '.join(parts)}"


def federation(config: Mapping[str, Any]) -> str:
    """The data, how many clients there are, and how it was split among them."""
    data = config.get("data")
    data = data if isinstance(data, Mapping) else {}
    path, clients = data.get("path"), data.get("clients")
    parts = [
        PurePath(str(path)).name if path else str(data.get("name", "unknown data")),
        *([f"{clients} client{'s' * (clients != 1)}"] if isinstance(clients, int) else []),
        *_split(data.get("partition")),
    ]
    return ", ".join(parts)


def _split(partition: object) -> list[str]:
    name = partition.get("name") if isinstance(partition, Mapping) else partition
    alpha = partition.get("alpha") if isinstance(partition, Mapping) else None
    if name == "dirichlet" and isinstance(alpha, int | float):
        return [f"alpha {alpha:g}"]
    return [] if name in (None, "natural") else [str(name).replace("_", " ")]


def _figure(run: Run) -> str:
    by = measures.headline_of(run)
    figure, name = measures.figure(measures.final(run, by), by), measures.words(by.name)
    return figure if by.name == "accuracy" else f"{name} {figure}"


def _reached(run: Run) -> str:
    """The largest share of the target that was reached, and when."""
    summary = run.summary
    known = [] if summary is None else [share for share, at in summary.rounds_to.items() if at is not None]
    if summary is None or not known:
        return ""
    share = max(known, key=float)
    of = "" if summary.target == 1 else f" of {measures.figure(summary.target, measures.headline_of(run))}"
    return f"{measures.share_text(share)}{of} in round {summary.rounds_to[share]}"


def rounds(count: int) -> str:
    return f"{count} round{'s' * (count != 1)}"
