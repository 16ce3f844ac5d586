"""Several runs of one TOML file side by side: a table, a page and machine-readable results by one command.

The file is a configuration as `fedrelay run` takes it, with a table `[runs.NAME]` for every run that says what differs
in it. `seeds = [0, 1, 2]` repeats every run; `reference = "NAME"` makes that run's accuracy (or whatever the runs are
judged by) the target of the others; `baseline = "NAME"` is the run whose rounds speed-ups are measured against, and
`parallelism_baseline` the one whose number of groups is: FedAvg and FedSeq, where they are among the runs.

A run that names another method keeps what the section says and the new method knows too (`fraction`, say); what was
left out is told.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Executor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console

from fedrelay import config, report
from fedrelay.config import schema
from fedrelay.errors import BadInput, RunFailed, within
from fedrelay.report import effort
from fedrelay.report.progress import bars, follow
from fedrelay.report.time_left import TimeLeft
from fedrelay.runs.folder import SUMMARY, read_summary
from fedrelay.runs.log import Summary
from fedrelay.studies import over_seeds, positions
from fedrelay.studies.beside import side_by_side, submit
from fedrelay.studies.claims import COMPARISON, claim
from fedrelay.studies.compared import Bases, Row, headline, markdown, shares_of
from fedrelay.studies.names import check_name, folder_name, refuse_controls, refuse_links
from fedrelay.studies.on_cluster import refuse_engine
from fedrelay.studies.over_seeds import Repeated
from fedrelay.studies.overrides import merged
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

EXTRA = ("runs", "seeds", "reference", "baseline", "parallelism_baseline")


@dataclass(frozen=True)
class Job:
    """One run with one seed."""

    name: str
    seed: int
    tables: config.Tables
    folder: Path
    left_out: tuple[str, ...] = ()
    """What the file says for all runs and this one does not know."""
    logbooks: tuple[str, ...] = ()
    """Of other programs, into which its rounds are written too (`trackers.TRACKERS`)."""


def compare(
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
    logbooks: Sequence[str] = (),
) -> tuple[list[Row], list[str]]:
    """Do every run of the tables that is not done yet; write results.json, results.md and report.html.

    `name` is what the comparison is called: its file, as a rule. `jobs` runs are done at a time (default: one), or as
    many as there are CPUs on the Ray cluster at the address `ray`. Besides the rows: what to know before they are
    compared. Results of another comparison in the folder are refused, unless by `force` (they are replaced; the folders
    of runs never are).
    """
    if jobs is not None:
        within("jobs", jobs, least=1)
    against = against_of(tables)
    todo, reference = plan(tables, out, sets)
    todo = [replace(job, logbooks=tuple(logbooks)) for job in todo]
    refuse_links(out, (job.folder for job in todo))
    claim(out, COMPARISON, lambda found: covers(todo, found), force=force)
    for job in todo:
        with told_of(name, job):
            built = config.build(job.tables, data_dir)  # a mistake in the last run must not wait for the first to end
            if ray is not None:
                refuse_engine(built.engine)
    first = [job for job in todo if job.name == reference]
    rest = [job for job in todo if job.name != reference]
    with side_by_side(jobs, ray, out) as pool:
        failures = carry_out(first, live, pool, data_dir)
        if first:
            rest = [aimed(job, first, failures) for job in rest]
        failures |= carry_out(rest, live, pool, data_dir)
    rows = rows_of(todo, failures)
    done = [job for job in todo if (job.name, job.seed) not in failures]
    missing = left_out(todo)
    remarks = [*missing, *unlike(done)]
    repeated = repeated_of(done)
    judged = headline([summary for row in rows for summary in row.summaries])
    damages = positions.damages(rows, {job.name: job.tables for job in todo})
    more = [text for text in (over_seeds.by_client(repeated), positions.table(damages, judged)) if text]
    write(rows, remarks, out, Path(name).stem, more="\n".join(more), against=against)
    if done:
        pictures = [*over_seeds.picture(repeated, judged), *positions.picture(damages, judged)]
        page = against_done(against, done)
        report.write(
            [job.folder for job in done], out / "report.html", remarks=missing, pictures=pictures, against=page
        )
    return rows, remarks


def against_of(tables: Mapping[str, Any]) -> report.Against:
    """The runs that others are measured against, as far as the file names them."""
    runs, keys = tables.get("runs"), ("baseline", "parallelism_baseline")
    names = [tables.get(key) for key in keys]
    for key, name in zip(keys, names, strict=True):
        if name is not None and (not isinstance(name, str) or not isinstance(runs, dict) or name not in runs):
            raise BadInput(f"{key} {name!r:.100} is no run{schema.nearest(str(name), runs or {})}")
    return report.Against(*names)


def against_done(against: report.Against, done: Sequence[Job]) -> report.Against:
    """As the page knows them, by their folders; a run that failed in all its seeds is no measure for others."""
    names = {job.name: folder_name(job.name) for job in done}
    return report.Against(names.get(against.speed or ""), names.get(against.parallelism or ""))


def left_out(todo: Sequence[Job]) -> list[str]:
    """What runs do not have of what the file says for all, run by run."""
    return [
        f"{job.name} does without {', '.join(job.left_out)} of the file, which {named(job)} does not know."
        for job in {job.name: job for job in todo}.values()
        if job.left_out
    ]


def named(job: Job) -> str:
    """What the sections name in which something is left out."""
    sections = dict.fromkeys(key.partition(".")[0] for key in job.left_out)
    return " and ".join(str(job.tables[section]["name"]) for section in sections)


def unlike(done: Sequence[Job]) -> list[str]:
    """Whether runs did more in a round than others; of several seeds the first speaks."""
    first = {job.name: job for job in reversed(done)}
    names = list(dict.fromkeys(job.name for job in done))
    return effort.notes([report.load(first[name].folder) for name in names], names)


def plan(tables: Mapping[str, Any], out: Path, sets: Sequence[str] = ()) -> tuple[list[Job], str | None]:
    """Every run with every seed, and the name of the reference."""
    said: list[Any] = [tables.get(key) for key in EXTRA]
    runs, seeds, reference, *_ = said
    tables = {key: value for key, value in tables.items() if key not in EXTRA}
    if not isinstance(runs, dict) or not runs or not all(isinstance(changes, dict) for changes in runs.values()):
        raise BadInput("there are no runs to compare: add a table [runs.NAME] for each, with what differs in it")
    if reference is not None and (not isinstance(reference, str) or reference not in runs):
        raise BadInput(f"reference {reference!r} is no run{schema.nearest(str(reference), runs)}")
    several = seeds is not None
    if several and not (isinstance(seeds, list) and seeds and all(type(seed) is int for seed in seeds)):
        raise BadInput(f"seeds must be a list of whole numbers such as [0, 1, 2], not {seeds!r:.200}")
    jobs = []
    for name, changes in runs.items():
        own, left_out = merged(tables, changes)
        one = config.override(own, sets)
        alone = schema.convert(one.get("seed", config.NUMBERS["seed"]), int, f"run {name!r:.100}: seed")
        for seed in seeds if several else [alone]:
            refuse_controls(name, f"run {name!r:.100}")
            folder = out / check_name(folder_name(name), f"run {name!r:.100}")
            place = folder / f"seed-{seed}" if several else folder
            jobs.append(Job(name, seed, {**one, "seed": seed}, place, tuple(left_out)))
    folders = [job.folder for job in jobs]
    if len(set(folders)) < len(folders):
        raise BadInput(f"two runs would share a folder: give runs and seeds different names, not {list(runs)}")
    return jobs, reference


def carry_out(
    todo: Sequence[Job], live: Console, pool: Executor | None, data_dir: Path | None
) -> dict[tuple[str, int], str]:
    """Run what is to be done: the reasons of those that failed, which do not stop the others."""
    if pool is None:
        reasons, left = dict[tuple[str, int], str](), TimeLeft("runs", len(todo))
        for number, job in enumerate(todo, 1):
            reason = run(job, data_dir, live, left)
            reasons |= {} if reason is None else {(job.name, job.seed): reason}
            left.at(number)
        return reasons
    failures = {}
    with bars(live) as progress:
        bar = progress.add_task("all runs", total=len(todo), unit="runs", said="")
        futures = {submit(pool, run, job, data_dir): job for job in todo}
        for future in as_completed(futures):
            job, reason = futures[future], future.result()
            if reason is not None:
                failures[job.name, job.seed] = reason
            progress.update(bar, advance=1, said=f"{job.name} {'done' if reason is None else 'failed'}")
    return failures


def run(job: Job, data_dir: Path | None, live: Console | None = None, left: TimeLeft | None = None) -> str | None:
    """One run to its end: why it failed, or None. Beside others it has no display of its own, only warnings."""
    console = live or PlainConsole(stderr=True, force_terminal=False)
    try:
        recorder = config.build(job.tables, data_dir).record(job.folder, resume=True)
        follow(recorder, console, left, logbooks=job.logbooks)
    except RunFailed as error:
        return str(error)
    return None


def aimed(job: Job, first: Sequence[Job], failures: Mapping[tuple[str, int], str]) -> Job:
    """The job with the reference's mean headline as its target."""
    summaries = [summary_of(one) for one in first if (one.name, one.seed) not in failures]
    found = [summary.mean for summary in summaries if summary.mean is not None]
    if not found or len(found) < len(summaries):
        name = summaries[0].metric if summaries else "accuracy"
        raise RunFailed(f"the reference {first[0].name!r} has no {name} to measure the others against")
    target = {"evaluate": {**job.tables.get("evaluate", {}), "target": statistics.fmean(found)}}
    return replace(job, tables={**job.tables, **target})


def covers(todo: Sequence[Job], found: Sequence[Mapping[str, Any]]) -> bool:
    """Whether these jobs are all that an earlier results.json tells of, or more."""
    for row in found:
        mine = [job.seed for job in todo if job.name == row["name"]]
        known = row.get("seeds", mine[: len(row["summaries"]) + len(row["failed"])])  # older ones do not say which
        if len(mine) < len(row["summaries"]) + len(row["failed"]) or not set(known) <= set(mine):
            return False
    return True


def summary_of(job: Job) -> Summary:
    found = read_summary(job.folder / SUMMARY)
    assert found is not None  # the job has ended well
    return found


def rows_of(todo: Sequence[Job], failures: Mapping[tuple[str, int], str]) -> list[Row]:
    """The jobs of one run together, in the order of the file."""
    rows = []
    for name in dict.fromkeys(job.name for job in todo):
        mine = [job for job in todo if job.name == name]
        good = tuple(summary_of(job) for job in mine if (job.name, job.seed) not in failures)
        bad = tuple(failures[name, job.seed] for job in mine if (name, job.seed) in failures)
        rows.append(Row(name, good, bad, tuple(job.seed for job in mine)))
    return rows


def repeated_of(done: Sequence[Job]) -> list[Repeated]:
    """The seeds of every run together."""
    found = []
    for name in dict.fromkeys(job.name for job in done):
        mine = [job for job in done if job.name == name]
        means = (summary_of(job).mean for job in mine)
        values = tuple(value for value in means if value is not None)
        found.append(Repeated(name, values, tuple(job.folder for job in mine)))
    return found


def write(
    rows: Sequence[Row],
    remarks: Sequence[str],
    out: Path,
    title: str,
    *,
    more: str = "",
    against: report.Against = report.Against(),
) -> None:
    """The results beside the runs; `more` are tables that follow that of the runs."""
    bases = Bases.of(rows, against)
    content = [
        {
            "name": row.name,
            "seeds": list(row.seeds),
            "failed": list(row.failed),
            "speed_up": {share: bases.speed_up(row, share) for share in shares_of(rows)},
            "parallelism_ratio": bases.parallelism_ratio(row),
            "summaries": list(map(asdict, row.summaries)),
        }
        for row in rows
    ]
    files.write(out / "results.json", (json.dumps(content, indent=2) + "\n").encode())
    files.write(out / "results.md", (markdown(rows, title, remarks, against) + (f"\n{more}" if more else "")).encode())


@contextmanager
def told_of(name: str, job: Job) -> Iterator[None]:
    """A mistake is told with the file and the run it is in."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{name}, run {job.name!r}: {error}") from error
