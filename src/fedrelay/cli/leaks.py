"""The command line for what models give away of the examples they were trained on: membership and inversion."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.table import Table

from fedrelay import config
from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.errors import BadInput
from fedrelay.report.progress import bars
from fedrelay.report.sheet import Column
from fedrelay.studies.inversion import measure as inversion
from fedrelay.studies.inversion import page as inversion_page
from fedrelay.studies.kept import Kept, jobs_of
from fedrelay.studies.membership import measure as membership
from fedrelay.studies.membership import page as membership_page
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add_membership(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay membership`."""
    add_common(parser, "membership")
    text = "the clients that are asked about, by number (default: some drawn from the seed)"
    parser.add_argument("--clients", metavar="A,B,…", help=text)
    parser.add_argument("--victims", type=int, metavar="N", help="so many clients, drawn from the seed (default: 10)")
    parser.set_defaults(command=run_membership)


def add_common(parser: argparse.ArgumentParser, what: str) -> None:
    parser.add_argument("file", type=Path, help="a configuration, or one with a table [runs.NAME] for every run")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change a value in every run")
    parser.add_argument("--out", type=Path, default=Path(f"{what}.html"), help=f"the page (default: {what}.html)")
    parser.add_argument("--json", action="store_true", help="print all figures as JSON, and nothing else")
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)


def run_membership(options: argparse.Namespace) -> int:
    targets.check_free(options.out, "--out", force=options.force)
    named = None if options.clients is None else numbers(options.clients)
    if named is not None and options.victims is not None:
        raise BadInput("--clients names those who are asked about, and --victims draws some: give one of both")
    jobs = jobs_of(config.read(options.file), options.set)
    kept = Kept(options.out.with_suffix(".json"), "membership", force=options.force)
    found = {}
    with bars(quiet.console(options)) as progress:
        for name, tables in jobs.items():
            of = [tables, named, options.victims]
            one = kept.get(name, of, membership.from_record)
            if one is None:
                bar = progress.add_task(name, total=None, unit="rounds", said="")
                with told_of(options.file, name, jobs):
                    one = membership.measure(
                        tables,
                        named=named,
                        victims=options.victims,
                        data_dir=options.data_dir,
                        told=lambda done, of, bar=bar: progress.update(bar, completed=done, total=of),  # type: ignore[misc]
                    )
                kept.put(name, of, membership.as_record(one))
            found[name] = one
    kept.only(list(found))
    write(options.out, membership_page.html(found))
    if options.json:
        print(json.dumps({name: membership.as_record(one) for name, one in found.items()}, indent=2))
        return 0
    show("seen", "Who can tell a client's examples from others", *membership_page.table(found))
    for note in membership_page.notes(found):
        OUT.print(note, soft_wrap=True, highlight=False)
    OUT.print(f"Wrote {options.out} and {kept.path}", soft_wrap=True)
    return 0


def add_inversion(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay inversion`."""
    add_common(parser, "inversion")
    parser.add_argument("--client", type=int, default=0, help="whose examples are made again, by number (default: 0)")
    parser.set_defaults(command=run_inversion)


def run_inversion(options: argparse.Namespace) -> int:
    targets.check_free(options.out, "--out", force=options.force)
    jobs, found = jobs_of(config.read(options.file), options.set), {}
    with bars(quiet.console(options)) as progress:
        bar = progress.add_task("inversion", total=len(jobs), unit="runs", said="")
        for name, tables in jobs.items():
            progress.update(bar, said=name)
            with told_of(options.file, name, jobs):
                found[name] = inversion.invert(tables, client=options.client, data_dir=options.data_dir)
            progress.advance(bar)
    write(options.out, inversion_page.html(found))
    if options.json:
        print(json.dumps({name: inversion.as_record(one) for name, one in found.items()}, indent=2))
        return 0
    show("run", "Examples made again from one visit", *inversion_page.table(found))
    OUT.print(f"Wrote {options.out}", soft_wrap=True)
    return 0


def show(what: str, title: str, rows: Sequence[str], columns: Sequence[Column]) -> None:
    table = Table(what, *(column.title for column in columns), title=title)
    for place, row in enumerate(rows):
        table.add_row(row, *(column.cells[place] for column in columns))
    OUT.print(table)


def write(out: Path, page: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        files.write(out, page.encode(errors="replace"))
    except OSError as error:
        raise BadInput(f"{out} cannot be written ({error.strerror}): name another --out") from None


def numbers(text: str) -> list[int]:
    """Numbers of clients, with commas between."""
    try:
        return [int(part) for part in text.split(",")]
    except ValueError:
        raise BadInput(f"--clients {text}: expected numbers with commas between, such as 0,3,7") from None


@contextmanager
def told_of(file: Path, name: str, jobs: Sequence[str] | dict[str, config.Tables]) -> Iterator[None]:
    """A mistake is told with the run it is in, where there are several."""
    try:
        yield
    except BadInput as error:
        raise BadInput(f"{file}, run {name!r}: {error}" if len(jobs) > 1 else str(error)) from error
