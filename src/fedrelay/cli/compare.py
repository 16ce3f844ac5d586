"""The command line for several runs at once: compare and tune."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from rich import box
from rich.table import Table
from rich.text import Text

from fedrelay import config
from fedrelay.cli import data as cli_data
from fedrelay.cli import live as cli_live
from fedrelay.cli import quiet, targets
from fedrelay.errors import BadInput
from fedrelay.studies import compare, compared, trials, tune
from fedrelay.studies.attack_grid import crossing, grid, page
from fedrelay.studies.attack_grid.cells import Cells
from fedrelay.studies.in_one_line import in_one_line
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)


def add_compare(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay compare`."""
    text = "a configuration with a table [runs.NAME] for every run, or with methods, attacks and defences to be crossed"
    parser.add_argument("file", type=Path, help=text)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="change a value in every run")
    parser.add_argument("--out", type=Path, help="where runs, results and report.html go (default: runs/NAME OF FILE)")
    add_side_by_side(parser)
    quiet.add(parser)
    cli_live.add_logbooks(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_compare)


def add_side_by_side(parser: argparse.ArgumentParser) -> None:
    """How many runs there are at a time, and where."""
    text = "runs at a time, each in a process of its own (default: 1; with --ray, the CPUs of the cluster)"
    parser.add_argument("--jobs", type=int, help=text)
    text = "do the runs on a Ray cluster whose machines share this folder: auto, local, or HOST:PORT of its head"
    parser.add_argument("--ray", metavar="ADDRESS", help=text)


def run_compare(options: argparse.Namespace) -> int:
    out: Path = options.out or Path("runs") / options.file.stem
    tables, names = config.read(options.file), ("jobs", "ray", "data_dir", "force")
    settings = {"name": str(options.file), "sets": options.set, **{name: getattr(options, name) for name in names}}
    live = quiet.console(options)
    logbooks = cli_live.logbooks(options)
    if crossing.asked(tables):
        if logbooks:
            raise BadInput(f"--{logbooks[0]} is for runs of [runs.NAME]: leave it out where attacks meet defences")
        return told_of_grid(grid.carry_out(tables, out, live, **settings), out)
    rows, remarks = compare.compare(tables, out, live, **settings, logbooks=logbooks)
    OUT.print(compared.table(rows))
    for text in remarks:
        OUT.print(text, style="yellow", highlight=False, soft_wrap=True)
    for row in rows:
        for reason in row.failed:
            ERR.print(f"{row.name} failed: {reason}", style="red", highlight=False, soft_wrap=True)
    line = in_one_line(rows, out)
    if line:
        OUT.print(line, highlight=False, soft_wrap=True)
    OUT.print(f"Results are in {out}: results.md, results.json, report.html.", soft_wrap=True)
    return 0 if all(not row.failed for row in rows) else 1


def told_of_grid(cells: Cells, out: Path) -> int:
    """What defences give and cost, method by method. Refused cells are no failures, and runs that break off under
    attack are results; what else failed is told, as in every comparison."""
    for method in cells.grid.methods:
        heads, lines = page.worth_table(cells, method)
        shown = [place for place, head in enumerate(heads) if not head.startswith(("traffic", "worst"))]
        table = Table(method, *(heads[place] for place in shown[1:]), box=box.SIMPLE_HEAD, pad_edge=False)
        for line in lines:
            table.add_row(*(Text(line[place]) for place in shown))
        OUT.print(table)
    for place, why in cells.failed.items():
        ERR.print(f"{crossing.name_of(place)} {why}", style="red", highlight=False, soft_wrap=True)
    OUT.print(f"Results are in {out}: results.md, results.json, report.html.", soft_wrap=True)
    return 1 if cells.failed else 0


def add_tune(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay tune`."""
    parser.add_argument("file", type=Path, help="the configuration")
    parser.add_argument("--lr", metavar="A,B,…", help="learning rates to try: short for --over local.lr=A,B,…")
    text = "another setting to try (numbers, texts, lists); can be repeated, and all combinations are tried"
    parser.add_argument("--over", action="append", default=[], metavar="A.B=C,D,…", help=text)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    parser.add_argument("--seeds", metavar="A,B,…", help="repeat every trial with these seeds and take the mean")
    add_side_by_side(parser)
    text = "give no value up early, so that the picture has every one after all rounds"
    parser.add_argument("--to-the-end", action="store_true", help=text)
    text = "where runs, results and report.html go (default: runs/tune-NAME OF FILE)"
    parser.add_argument("--out", type=Path, help=text)
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_tune)


def run_tune(options: argparse.Namespace) -> int:
    grid = grid_of(options)
    out: Path = options.out or Path("runs") / f"tune-{options.file.stem}"
    tables, seeds = config.read(options.file, options.set), seeds_of(options)
    ranked = tune.tune(
        tables,
        grid,
        out,
        quiet.console(options),
        seeds=seeds,
        jobs=options.jobs,
        ray=options.ray,
        to_the_end=options.to_the_end,
        data_dir=options.data_dir,
        force=options.force,
    )
    OUT.print(trials.board(ranked))
    OUT.print("\n".join(trials.advice(ranked, grid)), soft_wrap=True)
    OUT.print(f"Results are in {out}: results.md, tune.json, report.html.", soft_wrap=True)
    return 1 if ranked[0].stopped else 0


def seeds_of(options: argparse.Namespace) -> list[int]:
    """The seeds of the command line; none are the configuration's."""
    found = [] if options.seeds is None else tune.values_of(options.seeds, "--seeds")
    if not all(type(seed) is int for seed in found):
        raise BadInput(f"--seeds {options.seeds}: expected whole numbers with commas between, such as 0,1,2")
    return found


def grid_of(options: argparse.Namespace) -> dict[str, list[Any]]:
    """What to try, from the command line."""
    wanted = [] if options.lr is None else [f"local.lr={options.lr}"]
    grid: dict[str, list[Any]] = {}
    for text in (*wanted, *options.over):
        key, equals, values = text.partition("=")
        if not equals or not key.strip():
            raise BadInput(f"--over {text}: expected key=values, such as algorithm.mu=0.01,0.1,1")
        if key.strip() in grid:
            raise BadInput(f"{key.strip()} is given twice: say all its values at once")
        grid[key.strip()] = tune.values_of(values, key.strip())
    if not grid:
        raise BadInput("there is nothing to try: give --lr 0.01,0.03,0.1 or --over algorithm.mu=0.01,0.1,1")
    return grid
