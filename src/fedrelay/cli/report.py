"""The command line for run folders that are there: one page, and tables and figures for a paper."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrelay import report
from fedrelay.cli import targets
from fedrelay.errors import BadInput
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)


def add(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay report`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="run folders, or folders that hold some")
    parser.add_argument("--out", type=Path, default=Path("report.html"), help="the page (default: report.html)")
    text = "also write rounds, summaries and clients as CSV there"
    parser.add_argument("--csv", type=Path, metavar="OUTDIR", help=text)
    text = "also write what came out as a table for LaTeX (booktabs)"
    parser.add_argument("--latex", type=Path, metavar="FILE", help=text)
    text = 'also write the curves as SVG and PDF there, for a paper; needs matplotlib: pip install "fedrelay[figures]"'
    parser.add_argument("--figures", type=Path, metavar="OUTDIR", help=text)
    text = "how wide figures are and how large their letters (default: ieee)"
    parser.add_argument("--column", choices=report.COLUMNS, default="ieee", help=text)
    text = "the run that speed-ups are measured against (default: FedAvg, if it is among them)"
    parser.add_argument("--baseline", metavar="NAME", help=text)
    text = "the run that the number of groups is measured against (default: FedSeq, if it is among them)"
    parser.add_argument("--parallelism-baseline", metavar="NAME", help=text)
    targets.add_force(parser)
    parser.set_defaults(command=run)


def run(options: argparse.Namespace) -> int:
    """All that can be read is shown; what cannot is told, and then the exit code is 1."""
    targets.check_free(options.out, "--out", force=options.force)
    for name in report.CSV_FILES if options.csv else ():
        targets.check_free(options.csv / name, "--csv", force=options.force)
    if options.latex:
        targets.check_free(options.latex, "--latex", force=options.force)
    if options.figures and options.figures.is_dir() and any(options.figures.iterdir()) and not options.force:
        raise BadInput(f"{options.figures} is not empty: name another folder with --figures, or add --force")
    runs, remarks = report.gathered(options.folders)
    against = report.Against(options.baseline, options.parallelism_baseline)
    page = report.html(runs, remarks, against=against)
    written = [report.written(page, options.out)]
    written += report.write_csv(runs, options.csv) if options.csv else []
    written += [report.written(report.latex(runs), options.latex, "--latex")] if options.latex else []
    written += report.write_figures(runs, options.figures, options.column) if options.figures else []
    clients = report.client_table(runs)
    if clients is not None:
        OUT.print(clients)
    for text in remarks:
        ERR.print(text, style="yellow", highlight=False, soft_wrap=True)
    OUT.print(f"Wrote {', '.join(map(str, written))}", soft_wrap=True)
    return 1 if remarks else 0
