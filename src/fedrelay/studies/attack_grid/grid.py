"""The runs of a grid, one after another or side by side; what is done is not done again.

A cell whose defence does not hold there (Krum needs n ≥ 2f + 3 chains) is refused before anybody trains; the page says
why in its place, and all others are done.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config
from fedrelay.errors import BadInput, Diverged, DroppedClients, RunFailed, within
from fedrelay.report.progress import bars
from fedrelay.runs.folder import SUMMARY, read_summary
from fedrelay.runs.log import Summary
from fedrelay.studies import compare
from fedrelay.studies.attack_grid import page
from fedrelay.studies.attack_grid.cells import BROKE_OFF, FAILED, Cells
from fedrelay.studies.attack_grid.crossing import AXES, Crossing, Place, crossed, name_of, refused_everywhere
from fedrelay.studies.beside import side_by_side, submit
from fedrelay.studies.claims import COMPARISON, claim
from fedrelay.studies.compare import Job
from fedrelay.studies.names import check_name, folder_name, refuse_links
from fedrelay.studies.on_cluster import refuse_engine
from fedrelay.system import files


def carry_out(
    tables: Mapping[str, Any],
    out: Path,
    live: Console,
    *,
    name: str,
    sets: Sequence[str] = (),
    jobs: int | None = None,
    ray: str | None = None,
    data_dir: Path | None = None,
    force: bool = False,
) -> Cells:
    """Do every run of the grid that is not done yet; write results.json, results.md and report.html after every seed.

    The arguments are those of `compare`.
    """
    if jobs is not None:
        within("jobs", jobs, least=1)
    grid = crossed(tables)
    todo = plan(grid, tables, out, sets)
    refuse_links(out, (job.folder for job in todo.values()))
    claim(out, COMPARISON, lambda found: compare.covers(list(todo.values()), found), force=force)
    refused = refuse_mistakes(grid, todo, name=name, on_ray=ray is not None, data_dir=data_dir)
    failures = {(name_of(place), seed): why for (place, seed) in todo if (why := refused.get(place)) is not None}
    cells = Cells(grid, {})
    seeds = list(dict.fromkeys(seed for _, seed in todo))
    with side_by_side(jobs, ray, out) as pool, bars(live) as progress:
        known = [job for job in todo.values() if (job.name, job.seed) not in failures]
        bar = progress.add_task("cells", total=len(known), unit="runs", said="")
        for number, seed in enumerate(seeds, 1):
            for job, why in done([job for job in known if job.seed == seed], pool, data_dir):
                if why is not None:
                    failures[job.name, job.seed] = why
                progress.update(bar, advance=1, said=job.name)
            cells = Cells(grid, found_of(todo, seeds[:number], failures))
            write(cells, out, seeds[:number], name)
    return cells


def plan(
    grid: Crossing, tables: Mapping[str, Any], out: Path, sets: Sequence[str] = ()
) -> dict[tuple[Place, int], Job]:
    """Every cell with every seed; a folder for each method, attack and defence, one in the other."""
    rest = {key: value for key, value in tables.items() if key not in AXES}
    by_name = {name_of(place): place for place in grid.runs}
    runs = {name_of(place): changes for place, changes in grid.runs.items()}
    if len(by_name) < len(grid.runs):
        raise BadInput("two cells would have one name: leave · out of the names of methods, attacks and defences")
    jobs, _ = compare.plan({**rest, "runs": runs}, out, sets)
    placed = {}
    for job in jobs:
        place = by_name[job.name]
        folders = [check_name(folder_name(part), f"{part!r:.100}") for part in place]
        seed = [f"seed-{job.seed}"] if "seeds" in tables else []
        placed[place, job.seed] = replace(job, folder=out.joinpath(*folders, *seed))
    if len({job.folder for job in placed.values()}) < len(placed):
        raise BadInput("two cells would share a folder: give methods, attacks and defences different names")
    return placed


def refuse_mistakes(
    grid: Crossing, todo: Mapping[tuple[Place, int], Job], *, name: str, on_ray: bool, data_dir: Path | None
) -> dict[Place, str]:
    """Build what only one table of the file is in, before anybody trains: which cells are refused, and why. A table
    that is refused wherever it stands is a mistake, and told as one."""
    first = {place: job for (place, _), job in reversed(list(todo.items()))}
    found: dict[Place, str] = {}
    for place in grid.along_the_edges():
        try:
            built = config.build(first[place].tables, data_dir)
        except BadInput as error:
            found[place] = str(error)
            continue
        if on_ray:
            refuse_engine(built.engine)
    wrong = refused_everywhere(grid, found)
    if wrong is not None:
        raise BadInput(f"{name}, {wrong[0]}: {wrong[1]}")
    return found


def done(todo: Sequence[Job], pool: Executor | None, data_dir: Path | None) -> Iterator[tuple[Job, str | None]]:
    """The jobs as they end, each with why it has no result."""
    if pool is None:
        yield from ((job, attempt(job, data_dir)) for job in todo)
        return
    futures = {submit(pool, attempt, job, data_dir): job for job in todo}
    for future in as_completed(futures):
        yield futures[future], future.result()


def attempt(job: Job, data_dir: Path | None) -> str | None:
    """One run to its end: why it was refused, broke off or failed, or None."""
    try:
        return finished(job, data_dir)
    except Diverged as error:
        return f"{BROKE_OFF}{error}"
    except RunFailed as error:
        return f"{FAILED}{error}"


def finished(job: Job, data_dir: Path | None) -> str | None:
    """One run to its end: why it was refused, or None. A folder of another configuration stops all."""
    try:
        experiment = config.build(job.tables, data_dir)
    except BadInput as error:
        return str(error)
    recorder = experiment.record(job.folder, resume=True)
    within("rounds", recorder.rounds, least=recorder.done())
    found = read_summary(job.folder / SUMMARY)
    if found is not None and found.rounds == recorder.rounds:
        return None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DroppedClients)  # attacks do that; rounds.jsonl names them
            for _ in recorder.run():
                pass
    except BadInput as error:
        return str(error)  # a condition that does not hold here, or in a later round does not any more
    return None


def found_of(
    todo: Mapping[tuple[Place, int], Job], seeds: Sequence[int], failures: Mapping[tuple[str, int], str]
) -> dict[Place, tuple[Summary | str, ...]]:
    """What came out with these seeds, cell by cell, or why nothing did."""
    found: dict[Place, tuple[Summary | str, ...]] = {}
    for (place, seed), job in todo.items():
        if seed in seeds:
            why = failures.get((job.name, seed))
            found[place] = (*found.get(place, ()), compare.summary_of(job) if why is None else why)
    return found


def write(cells: Cells, out: Path, seeds: Sequence[int], name: str) -> None:
    """The results of the file of this name, with these seeds, beside the runs."""
    content = [
        {
            "name": name_of(place),
            **dict(zip(("method", "attack", "defence"), place, strict=True)),
            "seeds": list(seeds),
            "failed": [one for one in found if isinstance(one, str)],
            "summaries": [asdict(one) for one in found if isinstance(one, Summary)],
        }
        for place, found in cells.found.items()
    ]
    files.write(out / "results.json", (json.dumps(content, indent=1) + "\n").encode())
    files.write(out / "results.md", page.markdown(cells, name).encode())
    files.write(out / "report.html", page.html(cells, name).encode(errors="replace"))
