"""One self-contained HTML page that compares runs: nothing is fetched, so it opens without a network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

from fedrelay.errors import BadInput
from fedrelay.report import draws, figures, judged, measures, order, over_clients, pools, recovered, tables, wire
from fedrelay.report.against import Against
from fedrelay.report.columns import COLUMNS
from fedrelay.report.federations import apart
from fedrelay.report.headline import headline, notes, others
from fedrelay.report.rendering import rendered, rendered_part
from fedrelay.report.repeats import best_over_seeds, repeats
from fedrelay.report.series import live, means, series, smooth
from fedrelay.report.significance import compared
from fedrelay.runs.folder import Run
from fedrelay.runs.salvage import run_folders, salvaged
from fedrelay.system import files


def html(
    runs: Sequence[Run],
    remarks: Sequence[str] = (),
    pictures: Sequence[figures.Figure] = (),
    against: Against = Against(),
) -> str:
    """The page for these runs, in the order given; remarks and pictures are what else there is to know of them. Runs
    of different federations are shown one federation after another."""
    if not runs:
        raise BadInput("a report needs at least one run: name one or more run folders")
    names, found = measures.labels(runs), apart(runs)
    parts, drawn, data = [], [*pictures], []
    for number, one in enumerate(found):
        mine, called = [runs[place] for place in one.places], [names[place] for place in one.places]
        values, figures_of, numbers = part(mine, called, against if len(found) == 1 else Against(), number)
        parts.append(rendered_part("part.html", **values, part=number, federation=one.words, alone=len(found) == 1))
        drawn += figures_of
        data.append(numbers)
    words = f"Runs of {len(found)} different federations, shown apart: their figures cannot be compared."
    told, more = said(runs, names) if len(found) == 1 else (words, None)
    return rendered(
        "page.html",
        drawn,
        headline=told,
        others=more,
        notes=[*remarks, *(notes(runs, names) if len(found) == 1 else [])],
        names=names,
        pictures=pictures,
        columns=COLUMNS,
        rendered_parts=parts,
        parts=data,
    )


def said(runs: Sequence[Run], names: Sequence[str]) -> tuple[str, str | None]:
    """The headline and what follows it: over seeds, if there are several of several methods."""
    over_seeds = best_over_seeds(runs, repeats(runs, names))
    if over_seeds is None:
        return headline(runs, names), others(runs, names)
    return over_seeds, headline(runs, names)


def part(
    runs: Sequence[Run], names: Sequence[str], against: Against, number: int
) -> tuple[dict[str, Any], list[figures.Figure], Mapping[str, Any]]:
    """What the template needs of the runs of one federation, all its pictures, and the numbers for the script."""

    def keyed(drawn: Sequence[figures.Figure]) -> list[figures.Figure]:
        return [replace(figure, key=f"{number}-{figure.key}") for figure in drawn]

    together = repeats(runs, names)
    curves = live(figures.curves(runs, names) + over_clients.curves(runs, names)) + draws.curves(runs, names)
    bars = figures.bars(runs, names)
    settings, found = tables.settings(runs), [judged.judged(run) for run in runs]
    results = judged.figures(runs, found, names) + pools.figures(runs, names) + recovered.figures(runs, names)
    by, targets = measures.headline(runs), measures.targets(runs) if measures.shares(runs) else []
    what = "an accuracy" if by.name == "accuracy" else f"a test {measures.words(by.name)}"
    goal = f"{what} of {measures.figure(targets[0], by)}" if len(targets) == 1 else ""
    numbers = series(runs, names, curves, together) | {"order": order.orders(runs, names)}
    curves, bars, results = keyed(curves), keyed(bars), keyed(results)
    values = {
        "names": names,
        "styles": figures.styles(runs),
        "algorithms": [measures.algorithm(run) for run in runs],
        "progress": [None if run.summary else measures.progress(run) for run in runs],
        "headline": said(runs, names)[0],
        "others": said(runs, names)[1],
        "notes": notes(runs, names),
        "targets": targets,
        "target": goal,
        "judged_by": by,
        "figure": measures.words(by.name),
        "curves": curves,
        "series": numbers,
        "means": means(runs),
        "smooth": smooth(runs),
        "several_seeds": any(len(one.places) > 1 for one in together),
        "bars": bars,
        "strengths": {key.replace("_", " "): value for key, value in figures.STRENGTHS.items()},
        "comparisons": {
            "Reaching the target" if targets else "What came out": _grouped(tables.reached(runs, against)),
            "The whole run": _grouped(tables.costs(runs, against)),
            "Time and traffic by FedGSP's formulas, every visit by way of the server": _grouped(tables.estimated(runs)),
        },
        "compared": compared(runs, together, against),
        "spread": _grouped(judged.spread(found)),
        "by_client": judged.by_client(found),
        "results": results,
        "calibration": judged.calibration(found, names),
        "mistakes": judged.mistakes(found, names),
        "dropped": tables.dropped(runs, names),
        "wire": wire.lines(runs),
        "settings": settings,
        "differing": [setting for setting in settings if setting.differs],
        "fingerprints": [run.summary.params_sha256 if run.summary else None for run in runs],
    }
    return values, [*curves, *bars, *results], numbers


def gathered(folders: Sequence[Path]) -> tuple[list[Run], list[str]]:
    """The runs in these folders, and what is to be said of those that are damaged or empty; refused if no run is left.
    A folder named twice counts once, and one that holds run folders stands for them."""
    runs: dict[Path, Run] = {}
    said, refused = [], []
    for folder in map(Path, folders):
        try:
            several = run_folders(folder)
        except BadInput as error:
            refused.append(str(error))
            continue
        for one in several:
            try:
                if one.resolve() in runs:
                    continue
                kept = salvaged(one)
                runs[one.resolve()] = kept.run
                said += [kept.damage] if kept.damage else []
            except BadInput as error:
                refused.append(str(error))
    if not runs:
        raise BadInput("; ".join(refused) or "a report needs at least one run: name one or more run folders")
    return list(runs.values()), [*said, *(f"Left out: {reason}." for reason in refused)]


def write(
    folders: Sequence[Path],
    out: Path,
    *,
    remarks: Sequence[str] = (),
    pictures: Sequence[figures.Figure] = (),
    against: Against = Against(),
) -> Path:
    """The page for these run folders, written whole or not at all, as far as they can be read (`gathered`)."""
    runs, told = gathered(folders)
    return written(html(runs, [*remarks, *told], pictures, against), out)


def written(text: str, out: Path, option: str = "--out") -> Path:
    """A file with this text, whole or not at all."""
    out = Path(out)
    if out.is_dir():
        raise BadInput(f"{out} is a folder: name a file to write, for example {out / 'report.html'}")
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, text.encode(errors="replace"))
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another file with {option}") from None
    return out


def _grouped(columns: Sequence[tables.Column]) -> list[tuple[str, list[tables.Column]]]:
    """Neighbouring columns of one group under one heading."""
    return [(group, list(members)) for group, members in groupby(columns, key=lambda column: column.group)]
