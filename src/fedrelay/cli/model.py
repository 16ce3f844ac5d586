"""The command line for the model of a finished run: take it elsewhere, predict with it, or look at its features."""

from __future__ import annotations

import argparse
from pathlib import Path

from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet, targets
from fedrelay.errors import BadInput
from fedrelay.runs.results import table
from fedrelay.studies import features
from fedrelay.studies.export import export
from fedrelay.studies.predict import predict
from fedrelay.system import files
from fedrelay.system.console import PlainConsole

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)


def _add_client(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--client", metavar="NAME", help="the client whose own model is meant, where clients have some")


def add_export(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay export`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of a finished run")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="the file to write")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--onnx", dest="form", action="store_const", const="onnx", help="needs fedrelay[onnx]")
    form.add_argument("--torchscript", dest="form", action="store_const", const="torchscript", help="for libtorch")
    _add_client(parser)
    targets.add_force(parser)
    parser.set_defaults(command=run_export)


def run_export(options: argparse.Namespace) -> int:
    targets.check_free(options.out, "--out", force=options.force)
    written = export(options.folder, options.out, options.form, client=options.client)
    OUT.print(f"Wrote {written}", soft_wrap=True)
    return 0


def add_predict(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay predict`."""
    parser.add_argument("folder", type=Path, metavar="DIR", help="the folder of a finished run")
    text = "a table (.csv, .tsv, .parquet), a folder of images, .npy or .npz, or the name of a data set"
    parser.add_argument("data", metavar="DATA", help=text)
    parser.add_argument("--out", type=Path, metavar="CSV", help="where predictions go (default: they are printed)")
    _add_client(parser)
    targets.add_force(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_predict)


def run_predict(options: argparse.Namespace) -> int:
    if options.out is not None:
        targets.check_free(options.out, "--out", force=options.force)
    found = predict(options.folder, options.data, client=options.client, data_dir=options.data_dir)
    written = table(found.rows)
    if options.out is None:
        print(written, end="")
    else:
        try:
            options.out.parent.mkdir(parents=True, exist_ok=True)
            files.write(options.out, written.encode())
        except OSError as error:
            raise BadInput(f"{options.out} cannot be written ({error.strerror}): name another --out") from None
        OUT.print(f"Wrote {len(found.rows)} predictions to {options.out}", soft_wrap=True)
    if found.accuracy is not None:
        rest = "" if found.judged == len(found.rows) else f" ({len(found.rows) - found.judged} have no label)"
        ERR.print(f"{found.right} of {found.judged} are right: {found.accuracy:.1%}{rest}", highlight=False)
    return 0


def add_features(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay features`."""
    parser.add_argument("folders", nargs="+", type=Path, metavar="DIR", help="folders of finished runs")
    text = "the page (.html) or picture (.svg) to write (default: features.html)"
    parser.add_argument("--out", type=Path, default=Path("features.html"), metavar="FILE", help=text)
    text = f"draw so many of the test examples (default: {features.POINTS})"
    parser.add_argument("--points", type=int, default=features.POINTS, help=text)
    text = f"how many neighbours t-SNE keeps together (default: {features.PERPLEXITY:g})"
    parser.add_argument("--perplexity", type=float, default=features.PERPLEXITY, help=text)
    parser.add_argument("--seed", type=int, default=0, help="of the examples that are drawn, and of t-SNE (default: 0)")
    _add_client(parser)
    cli_data.add_folder(parser)
    quiet.add(parser)
    targets.add_force(parser)
    parser.set_defaults(command=run_features)


def run_features(options: argparse.Namespace) -> int:
    targets.check_free(options.out, "--out", force=options.force)
    placed = features.draw(
        options.folders,
        options.out,
        force=options.force,
        points=options.points,
        perplexity=options.perplexity,
        seed=options.seed,
        client=options.client,
        data_dir=options.data_dir,
        live=quiet.console(options),
    )
    for one in placed:
        text = f"{one.name}: {len(one.labels)} of {one.of} test examples; the nearest is of the same class for"
        OUT.print(f"{text} {one.alike.mean():.1%}", highlight=False, soft_wrap=True)
    OUT.print(f"Wrote {options.out}", soft_wrap=True)
    return 0
