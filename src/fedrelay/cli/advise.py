"""The command line of advice: which method to try first, and a race of the short-list."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import tomli_w

from fedrelay import config
from fedrelay.cli import compare as cli_compare
from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.config.federation import DATA
from fedrelay.errors import BadInput
from fedrelay.studies.advise import Wishes, advise, told
from fedrelay.studies.advise import carry_out as racing
from fedrelay.studies.advise import outcome as outcomes
from fedrelay.studies.advise.advice import skipped, tables_for
from fedrelay.studies.advise.budget import Budget
from fedrelay.studies.compare import EXTRA
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
TABLES = (".csv", ".tsv", ".parquet")
WRITTEN = ("advice.md", "advice.json", "first.toml")


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay advise`."""
    text = "a configuration, the name of a data set, a table (CSV, Parquet), or a folder of pictures or tables"
    parser.add_argument("what", help=text)
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    text = "what shall be small (default: time where the file has [latency], else traffic)"
    parser.add_argument("--by", choices=["traffic", "time", "rounds"], help=text)
    parser.add_argument("--no-state", action="store_true", help="clients keep nothing between visits")
    text = "how a model gets from client to client (default: direct)"
    parser.add_argument("--reach", choices=["direct", "server", "none"], default="direct", help=text)
    text = "Mbit/s of the server's line, shared by all (default: never what one waits for)"
    parser.add_argument("--server-line", type=float, metavar="MBIT", help=text)
    text = "price of a byte to and from the server (default: 1)"
    parser.add_argument("--server-price", type=float, default=1.0, metavar="P", help=text)
    text = "price of a byte between clients (default: 1; 0: links are free)"
    parser.add_argument("--link-price", type=float, default=1.0, metavar="P", help=text)
    text = "how often a client comes back in the whole run (default: fraction times rounds)"
    parser.add_argument("--visits", type=float, metavar="N", help=text)
    text = "rounds that FedAvg needs, if that is known (default: the file's rounds)"
    parser.add_argument("--fedavg-rounds", type=int, metavar="N", help=text)
    parser.add_argument("--json", action="store_true", help="print the advice as JSON, and nothing else")
    parser.add_argument("--race", action="store_true", help="run the short-list and see; the winner's file is written")
    text = "of the whole race: 600rounds, 12000visits or 10minutes (default: 600rounds)"
    parser.add_argument("--budget", default="600rounds", metavar="N", help=text)
    text = "the figure that is to be reached (default: 95 %% of what FedAvg has at the end of the race)"
    parser.add_argument("--target", type=float, metavar="X", help=text)
    text = f"where {', '.join(WRITTEN)} go (default: nowhere); with --race, the runs (default: runs/race-NAME)"
    parser.add_argument("--out", type=Path, help=text)
    cli_compare.add_side_by_side(parser)
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    tables = tables_of(options.what, options.set)
    wishes = Wishes(
        by=options.by,
        state=not options.no_state,
        reach=options.reach,
        server_price=options.server_price,
        link_price=options.link_price,
        server_line=options.server_line,
        visits=options.visits,
        rounds=options.fedavg_rounds,
    )
    budget = Budget.of(options.budget)
    advice, experiment = advise(tables, wishes, options.data_dir)
    said = typed(options)
    if options.out and not options.race:
        for name in WRITTEN:
            targets.check_free(options.out / name, "--out", force=options.force)
        options.out.mkdir(parents=True, exist_ok=True)
        first = tomli_w.dumps(tables_for(tables, advice.first))
        record = json.dumps(advice.as_record(), indent=2) + "\n"
        for name, text in zip(WRITTEN, (told.markdown(advice, said), record, first), strict=True):
            files.write(options.out / name, text.encode())
    if options.json and not options.race:
        print(json.dumps(advice.as_record(), indent=2))
        return 0
    if not options.race:
        told.show(advice, said, OUT)
        if options.out:
            OUT.print(f"\nWrote {', '.join(WRITTEN)} into {options.out}: ", end="", highlight=False)
            OUT.print(said.run(options.out / "first.toml"), soft_wrap=True, highlight=False)
        return 0
    out: Path = options.out or Path("runs") / f"race-{Path(options.what).stem}"
    outcome = racing.race(
        tables,
        advice,
        experiment,
        out,
        quiet.console(options),
        budget=budget,
        target=options.target,
        jobs=options.jobs,
        ray=options.ray,
        data_dir=options.data_dir,
        force=options.force,
    )
    if options.json:
        print(json.dumps(outcomes.as_record(outcome), indent=2))
        return 0
    OUT.print(told.choice_in_words(advice), highlight=False)
    OUT.print(outcomes.table(outcome))
    for line in skipped({**advice.refused, **outcome.race.refused}):
        OUT.print(line, highlight=False, markup=False)
    OUT.print(outcomes.summary(outcome), style="bold green", highlight=False)
    OUT.print(f"Results are in {out}: results.md, race.json, report.html. Run the winner: ", end="")
    OUT.print(said.run(out / "winner.toml"), soft_wrap=True, highlight=False)
    return 0 if outcome.winner.cost is not None else 1


def typed(options: argparse.Namespace) -> told.Said:
    """The data and the wishes as they were typed, for the commands that are printed."""
    words = ["--no-state"] if options.no_state else []
    usual = {"by": None, "reach": "direct", "server_line": None, "server_price": 1.0, "link_price": 1.0}
    for name, value in {**usual, "visits": None, "fedavg_rounds": None}.items():
        if (found := getattr(options, name)) != value:
            words += [f"--{name.replace('_', '-')}", str(found)]
    alone = not options.what.endswith(".toml") or not any(key in config.read(options.what) for key in EXTRA)
    place = None if options.data_dir is None else str(options.data_dir)
    return told.Said(options.what, tuple(options.set), place, tuple(words), alone)


def is_table(path: Path) -> bool:
    return path.suffix.lower() in TABLES


def tables_of(what: str, sets: list[str]) -> dict[str, Any]:
    """The configuration: a file (of a comparison, what it says for all runs), or one of a data set by its name, a table
    or a folder, with a small network."""
    if what.endswith(".toml"):
        return {key: value for key, value in config.read(what, sets).items() if key not in EXTRA}
    path = Path(what).expanduser()
    if what in DATA:
        data: dict[str, Any] = {"name": what}
    elif is_table(path) or (path.is_dir() and any(map(is_table, path.iterdir()))):
        data = {"name": "table", "path": what}
    elif path.is_dir():
        data = {"name": "folder", "path": what}
    else:
        raise BadInput(
            f"{what!r:.200} is no TOML file, data set, table or folder: `fedrelay list data` has the data sets"
        )
    return config.override({"data": data, "model": {"name": "mlp"}}, sets)
