"""One self-contained HTML page that compares runs: nothing is fetched, so it opens without a network."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from pathlib import Path

from fedrelay.errors import BadInput
from fedrelay.report import draws, figures, judged, measures, over_clients, pools, recovered, tables, wire
from fedrelay.report.against import Against
from fedrelay.report.headline import headline, notes, others
from fedrelay.report.rendering import rendered
from fedrelay.runs.folder import Run, load
from fedrelay.system import files

MEANS = (5, 10, 25, 50, 100)
"""Rounds over which a page can average its curves: FedSeq's published code has 5, clustered sampling 2021 50."""


def html(
    runs: Sequence[Run],
    remarks: Sequence[str] = (),
    pictures: Sequence[figures.Figure] = (),
    against: Against = Against(),
) -> str:
    """The page for these runs, in the order given; remarks and pictures are what else there is to know of them."""
    if not runs:
        raise BadInput("a report needs at least one run: name one or more run folders")
    names = measures.labels(runs)
    curves = figures.curves(runs, names) + over_clients.curves(runs, names) + draws.curves(runs, names)
    bars = figures.bars(runs, names)
    settings, found = tables.settings(runs), [judged.judged(run) for run in runs]
    results = judged.figures(runs, found, names) + pools.figures(runs, names) + recovered.figures(runs, names)
    by, targets = measures.headline(runs), measures.targets(runs) if measures.shares(runs) else []
    what = "an accuracy" if by.name == "accuracy" else f"a test {measures.words(by.name)}"
    goal = f"{what} of {measures.figure(targets[0], by)}" if len(targets) == 1 else ""
    return rendered(
        "page.html",
        (*pictures, *curves, *bars, *results),
        names=names,
        styles=figures.styles(runs),
        algorithms=[measures.algorithm(run) for run in runs],
        finished=[run.summary is not None for run in runs],
        headline=headline(runs, names),
        others=others(runs, names),
        notes=[*remarks, *notes(runs, names)],
        targets=targets,
        target=goal,
        figure=measures.words(by.name),
        pictures=pictures,
        curves=curves,
        means=_means(runs),
        bars=bars,
        strengths={key.replace("_", " "): value for key, value in figures.STRENGTHS.items()},
        comparisons={
            "Reaching the target" if targets else "What came out": _grouped(tables.reached(runs, against)),
            "The whole run": _grouped(tables.costs(runs, against)),
            "Time and traffic by FedGSP's formulas, every visit by way of the server": _grouped(tables.estimated(runs)),
        },
        spread=_grouped(judged.spread(found)),
        by_client=judged.by_client(found),
        results=results,
        calibration=judged.calibration(found, names),
        mistakes=judged.mistakes(found, names),
        dropped=tables.dropped(runs, names),
        wire=wire.lines(runs),
        settings=settings,
        differing=[setting for setting in settings if setting.differs],
        fingerprints=[run.summary.params_sha256 if run.summary else None for run in runs],
    )


def write(
    folders: Sequence[Path],
    out: Path,
    *,
    remarks: Sequence[str] = (),
    pictures: Sequence[figures.Figure] = (),
    against: Against = Against(),
) -> Path:
    """The page for these run folders, written whole or not at all; a folder named twice counts once."""
    runs = [load(folder) for folder in {Path(folder).resolve(): folder for folder in folders}.values()]
    page = html(runs, remarks, pictures, against).encode(errors="replace")
    out = Path(out)
    if out.is_dir():
        raise BadInput(f"{out} is a folder: name a file to write, for example {out / 'report.html'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, page)
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another file with --out") from None
    return out


def _means(runs: Sequence[Run]) -> list[int]:
    """The numbers of rounds over which curves may be averaged; none if there are only a few."""
    most = max((len(run.rounds) for run in runs), default=0)
    return [rounds for rounds in MEANS if rounds < most]


def _grouped(columns: Sequence[tables.Column]) -> list[tuple[str, list[tables.Column]]]:
    """Neighbouring columns of one group under one heading."""
    return [(group, list(members)) for group, members in groupby(columns, key=lambda column: column.group)]
