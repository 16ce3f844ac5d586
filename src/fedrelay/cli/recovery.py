"""The command line for the images that attackers have made."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from rich.table import Table

from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.errors import BadInput
from fedrelay.report.measures import labels
from fedrelay.report.progress import bars
from fedrelay.runs.folder import load
from fedrelay.studies.recovery import networks, page
from fedrelay.studies.recovery.measure import as_record, common_accuracy, measure
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay recovery`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of runs with a recovery attack")
    text = "inception (the default), pixels, or the TorchScript file of a network that you trust"
    parser.add_argument("--features", default=networks.INCEPTION, metavar="NAME", help=text)
    parser.add_argument("--images", type=int, metavar="N", help="compare so many of each kind (default: all there are)")
    parser.add_argument("--out", type=Path, default=Path("recovery.html"), help="the page (default: recovery.html)")
    parser.add_argument("--json", action="store_true", help="print all distances as JSON, and nothing else")
    quiet.add(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    targets.check_free(options.out, "--out", force=options.force)
    folders = list({folder.resolve(): folder for folder in options.folders}.values())
    runs = [load(folder) for folder in folders]
    network = networks.chosen(options.features)
    found = {}
    with bars(quiet.console(options)) as progress:
        bar = progress.add_task("images", total=len(folders), unit="runs", said=f"features by {network.name}")
        for name, folder in zip(labels(runs), folders, strict=True):
            found[name] = measure(folder, network, images=options.images, data_dir=options.data_dir)
            progress.advance(bar)
    try:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        files.write(options.out, page.html(found, runs).encode(errors="replace"))
    except OSError as error:
        raise BadInput(f"{options.out} cannot be written ({error.strerror}): name another --out") from None
    if options.json:
        print(json.dumps({name: as_record(one) for name, one in found.items()}, indent=2))
        return 0
    rows, columns = page.table(found, common_accuracy(list(found.values())))
    table = Table("images", *(column.title for column in columns), title="How near recovered images come")
    for place, row in enumerate(rows):
        table.add_row(row, *(column.cells[place] for column in columns))
    OUT.print(table)
    for note in page.notes(found):
        OUT.print(note, soft_wrap=True, highlight=False)
    OUT.print(f"Wrote {options.out}", soft_wrap=True)
    return 0
