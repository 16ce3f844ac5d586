"""The command line for real clients: the server, a client, and their keys."""

from __future__ import annotations

import argparse
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path

from rich.table import Table

from fedrelay import config, report
from fedrelay.cli import data as cli_data
from fedrelay.cli import quiet
from fedrelay.engines.remote import Patience
from fedrelay.errors import BadInput
from fedrelay.report.progress import follow
from fedrelay.system.console import PlainConsole, PlainLines

OUT = PlainConsole()
ERR = PlainConsole(stderr=True)
LOG = logging.getLogger("fedrelay")
EXPERIMENT = "experiment"
LISTEN = "127.0.0.1:8470"


def add_serve(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay serve`."""
    parser.add_argument("file", type=Path, help="the configuration")
    parser.add_argument("--set", action="append", default=[], metavar="A.B=C", help="override a value; can be repeated")
    parser.add_argument("--out", type=Path, help="the run's folder (default: runs/ALGORITHM-HASH)")
    parser.add_argument("--resume", action="store_true", help="go on with a run that was stopped, to the same bits")
    text = f"where clients find it (default: {LISTEN}; port 0: any that is free)"
    parser.add_argument("--listen", default=LISTEN, metavar="HOST:PORT", help=text)
    parser.add_argument("--keys", type=Path, metavar="DIR", help="its keys, as `fedrelay keys` has made them")
    text = "who takes part (default: all whose keys are valid)"
    parser.add_argument("--clients", default="", metavar="NAME,NAME", help=text)
    text = "clients bring their own data (join --data), which is read as [data] says"
    parser.add_argument("--own-data", action="store_true", help=text)
    text = "a table, a folder or arrays (.npz) to test on, where clients bring theirs"
    parser.add_argument("--test", type=Path, metavar="PATH", help=text)
    text = "the same of public exemplars, sent to every client for traits that look at them (confidence)"
    parser.add_argument("--exemplars", type=Path, metavar="PATH", help=text)
    text = "every client holds this share of its data out of training, and the model is tested there (default: 0)"
    parser.add_argument("--hold-out", type=float, default=0.0, metavar="SHARE", help=text)
    parser.add_argument("--plain-text", action="store_true", help="without keys, although others can listen in")
    _add_patience(parser)
    text = "answer /health, /status and /metrics (Prometheus) on this port of 127.0.0.1 (0: any that is free)"
    parser.add_argument("--status", type=int, metavar="PORT", help=text)
    text = "only check configuration, keys, port and disk, and say what was found"
    parser.add_argument("--dry-run", action="store_true", help=text)
    text = "the longest message of a client (default: 64, and as much as 16 models)"
    parser.add_argument("--largest", type=float, metavar="MB", help=text)
    quiet.add(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_serve)


def _add_patience(parser: argparse.ArgumentParser) -> None:
    usual = Patience()
    options = {
        "deadline": f"the longest that a visit may take (default: {usual.deadline:g})",
        "least": f"what a visit is given at least, however quick the client was before (default: {usual.least:g})",
        "grace": f"how long a client that is lost may take to come back (default: {usual.grace:g})",
        "wait": f"a run that has begun waits so long for missing clients, then it stops (default: {usual.wait:g})",
    }
    for name, text in options.items():
        parser.add_argument(f"--{name}", type=float, default=getattr(usual, name), metavar="SECONDS", help=text)
    text = f"the run begins when this share of the clients is there (default: {usual.beginning:g})"
    parser.add_argument("--beginning", type=float, default=usual.beginning, metavar="SHARE", help=text)
    text = f"a later round waits until this share of those who have joined is there (default: {usual.share:g})"
    parser.add_argument("--share", type=float, default=usual.share, help=text)


def add_join(parser: argparse.ArgumentParser) -> None:
    """The options of `fedrelay join`."""
    parser.add_argument("--server", required=True, metavar="HOST:PORT", help="where the server listens")
    text = "what it brings: a table (.csv, .tsv, .parquet), a folder of pictures, arrays (.npz with x and y), or "
    text += f"module:function; or {EXPERIMENT}: its part of the data set that the server names, for rehearsals"
    parser.add_argument("--data", required=True, metavar="WHAT", help=text)
    parser.add_argument("--keys", type=Path, metavar="DIR", help="its keys, as `fedrelay keys` has made them")
    parser.add_argument("--name", default="", help="what this client is called, where it has no keys")
    parser.add_argument("--plain-text", action="store_true", help="without keys, although others can listen in")
    parser.add_argument("--policy", type=Path, metavar="TOML", help="what it refuses: methods, traits, rounds")
    text = "where it keeps what it keeps between visits (default: fedrelay-client)"
    parser.add_argument("--home", type=Path, default=Path("fedrelay-client"), metavar="DIR", help=text)
    quiet.add(parser)
    cli_data.add_folder(parser)
    parser.set_defaults(command=run_join)


def add_keys(parser: argparse.ArgumentParser, shared: argparse.ArgumentParser) -> None:
    """The commands below `fedrelay keys`."""
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, text: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=[shared])
        made.add_argument("folder", type=Path, metavar="DIR", help="the folder of the keys")
        made.set_defaults(command=run_keys, doing=name)
        return made

    def days(made: argparse.ArgumentParser) -> None:
        made.add_argument("--days", type=int, default=365, help="how long certificates are valid (default: 365)")

    making = command("make", "Make an authority, a server and clients, in a new folder.")
    making.add_argument("--server", default="", metavar="HOST,HOST", help="under which names clients find the server")
    making.add_argument("--clients", default="", metavar="NAME,NAME", help="the clients")
    days(making)
    adding = command("add", "Make keys for more clients.")
    adding.add_argument("clients", nargs="+", metavar="NAME")
    days(adding)
    command("list", "List the server and the clients, and whether their keys are valid.")
    revoking = command("revoke", "Refuse a client's keys from now on.")
    revoking.add_argument("client", metavar="NAME")
    renewing = command("renew", "Make new keys for a client, or for the server; a client's old ones are refused.")
    renewing.add_argument("client", nargs="?", metavar="NAME", help="without one: the server")
    days(renewing)


def run_keys(options: argparse.Namespace) -> int:
    with extra():
        from fedrelay.remote import keys
    folder: Path = options.folder
    if options.doing == "make":
        keys.make(folder, hosts=listed(options.server), clients=listed(options.clients), days=options.days)
        OUT.print(f"Wrote {folder}: carry clients/NAME to each client, and keep authority.key safe", soft_wrap=True)
    elif options.doing == "add":
        keys.add(folder, options.clients, days=options.days)
        OUT.print(f"Wrote keys for {', '.join(options.clients)} to {folder / 'clients'}", soft_wrap=True)
    elif options.doing == "revoke":
        keys.revoke(folder, options.client)
        OUT.print(f"{options.client} is refused from now on", soft_wrap=True)
    elif options.doing == "renew" and options.client is None:
        keys.renew_server(folder, days=options.days)
        OUT.print("Wrote a new key for the server: start it again", soft_wrap=True)
    elif options.doing == "renew":
        keys.renew(folder, options.client, days=options.days)
        OUT.print(f"Wrote {folder / 'clients' / options.client}: carry it to the client", soft_wrap=True)
    else:
        hosts, until = keys.server_facts(folder)
        table = Table("name", "state", "until", title=f"keys in {folder}", title_justify="left")
        table.add_row(f"server ({', '.join(hosts)})", "", f"{until:%Y-%m-%d}")
        for name, known in keys.read_known(folder).items():
            table.add_row(name, known.state, known.expires[:10])
        OUT.print(table)
    return 0


def listed(text: str) -> tuple[str, ...]:
    """Names that are separated by commas."""
    return tuple(name.strip() for name in text.split(",") if name.strip())


def run_serve(options: argparse.Namespace) -> int:
    logged(options)
    with extra():
        from fedrelay.remote.live import LiveTable
        from fedrelay.remote.serve import Place, Server, Serving
        from fedrelay.remote.status import StatusPage, check_free
    place = Place(
        options.listen,
        listed(options.clients),
        keys=options.keys,
        plain_text=options.plain_text,
        largest=options.largest,
    )
    patience = {item.name: getattr(options, item.name) for item in fields(Patience) if item.name != "factor"}
    serving = Serving(
        config.read(options.file, options.set),
        own_data=options.own_data,
        test=options.test,
        exemplars=options.exemplars,
        hold_out=options.hold_out,
        out=options.out,
        resume=options.resume,
        data_dir=options.data_dir,
        patience=Patience(**patience),
    )
    if options.status is not None:
        check_free(options.status)
    server, ended, status = Server(serving, place), False, None
    try:
        if options.dry_run:
            for line in server.check():
                OUT.print(line, soft_wrap=True, highlight=False)
            return 0
        recorder = server.open()
        if options.status is not None:
            status = StatusPage(options.status, server.engine)
            LOG.info("status on http://127.0.0.1:%d/status", status.port)
        try:
            follow(recorder, quiet.console(options), LiveTable(server.engine))
            ended = True
        except KeyboardInterrupt:
            text = f"stopped; the run is safe in {recorder.path}: the same command with --resume goes on from there"
            ERR.print(f"fedrelay: {text}", style="red", markup=False, highlight=False, soft_wrap=True)
            return 130
    finally:
        server.close(ended=ended)
        if status is not None:
            status.close()
    done = report.load(recorder.path)
    OUT.print(report.table([done]))
    OUT.print(report.one_line(done), highlight=False, soft_wrap=True)
    OUT.print(f"Results are in {recorder.path}; see them with: fedrelay report {recorder.path}", soft_wrap=True)
    return 0


def run_join(options: argparse.Namespace) -> int:
    logged(options)
    with extra():
        from fedrelay.remote.bringing import Bringing
        from fedrelay.remote.join import Client
        from fedrelay.remote.policy import Policy
    client = Client(
        options.server,
        options.home,
        name=options.name,
        keys=options.keys,
        plain_text=options.plain_text,
        bringing=None if options.data == EXPERIMENT else Bringing(options.data),
        policy=Policy() if options.policy is None else Policy.read(options.policy),
        data_dir=options.data_dir,
    )
    LOG.info("%s", client.take_part())
    return 0


class AboveTheTable(logging.Handler):
    """Lines in a terminal, above what is drawn there live."""

    def emit(self, record: logging.LogRecord) -> None:
        ERR.print(self.format(record), highlight=False, soft_wrap=True)


def logged(options: argparse.Namespace) -> None:
    """What happens, on the stream of errors, with time and level."""
    if not LOG.handlers:
        handler = AboveTheTable() if ERR.is_terminal else logging.StreamHandler()
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.WARNING if options.quiet else logging.INFO)


@contextmanager
def extra(name: str = "remote") -> Iterator[None]:
    """What is imported inside needs this extra."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BadInput(f'real clients need {error.name}: pip install "fedrelay[{name}]"') from None
