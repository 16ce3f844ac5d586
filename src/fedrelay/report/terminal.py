"""The comparison for the terminal: one row per run."""

from __future__ import annotations

from collections.abc import Sequence

from rich import box
from rich.table import Table
from rich.text import Text

from fedrelay.report import judged, measures
from fedrelay.runs.folder import Run


def table(runs: Sequence[Run]) -> Table:
    """The final headline, rounds and traffic to each share of the target, and what every run cost."""
    shares = measures.shares(runs)
    divisor, unit = measures.unit(max((measures.traffic_to(run, s) or 0 for run in runs for s in shares), default=0))
    result = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold", caption_justify="left"
    )
    result.add_column("run", overflow="fold", min_width=11)
    steps = _steps([measures.share_text(share).removesuffix(" %") for share in shares]) + " %"
    by = measures.headline(runs)
    columns = [f"final\n{measures.words(by.name)}"]
    timed = any(map(measures.clock, runs))
    if shares:
        columns += [f"rounds to\n{steps}", f"{unit} to\n{steps}"] + [f"simulated s to\n{steps}"] * timed
    for title in [*columns, "messages", "depth", "seconds"]:
        result.add_column(title, justify="right", no_wrap=True)
    for name, run in zip(measures.labels(runs), runs, strict=True):
        cells = [measures.figure(measures.final(run, by), by)]
        if shares:
            cells.append(_steps([_exact(measures.rounds_to(run, share)) for share in shares]))
            cells.append(_steps([_scaled(measures.traffic_to(run, share), divisor) for share in shares]))
            cells += [_steps([_scaled(measures.time_to(run, share), 1) for share in shares])] * timed
        cells += [_exact(measures.total(run, "messages")), _exact(measures.depth(run)), f"{measures.seconds(run):.1f}"]
        going = "" if run.summary else " …"
        # Text, not str: a folder called "[red]" is a name, not markup.
        result.add_row(Text(name + going), *map(Text, cells))
    if any(run.summary is None for run in runs):
        result.caption = "… not finished"
    return result


def client_table(runs: Sequence[Run]) -> Table | None:
    """What the final models are worth to clients: the spread of every run, then the clients. None if no run has any."""
    found = [judged.judged(run) for run in runs]
    listed = judged.by_client(found)
    if listed is None:
        return None
    result = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    result.add_column(f"{listed.headline} of client", overflow="fold", min_width=11)
    result.add_column("tested on", justify="right")
    for name in measures.labels(runs):
        result.add_column(Text(name), justify="right", overflow="fold")
    for column in judged.spread(found)[1:]:
        result.add_row(Text(column.title, style="bold"), "", *map(Text, column.cells))
    result.add_section()
    for line in listed.lines:
        result.add_row(Text(line.name), line.tested, *map(Text, line.cells))
    if len(listed.lines) < listed.clients:
        result.caption = f"the worst {len(listed.lines)} of {listed.clients} clients"
    return result


def _steps(parts: Sequence[str]) -> str:
    return "/".join(parts)


def _exact(value: int | None) -> str:
    return measures.NONE if value is None else str(value)


def _scaled(value: float | None, divisor: int) -> str:
    if value is None:
        return measures.NONE
    scaled = value / divisor
    if 0 < scaled < 0.01:
        return "<0.01"
    return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}"
