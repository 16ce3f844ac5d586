"""The ServerApp that `flwr run` starts: it plans, relays batons from node to node, merges and records.

fedrelay.remote.flower.server:app
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TypeVar

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from fedrelay import config
from fedrelay.engines.remote import Patience
from fedrelay.errors import BadInput, RunFailed
from fedrelay.remote import keys
from fedrelay.remote.flower.folder import APP, EXPERIMENT, USUAL
from fedrelay.remote.flower.node import Values, names_in
from fedrelay.remote.flower.wire import FlowerWire
from fedrelay.remote.hosting import MEGABYTE, Host, Serving
from fedrelay.remote.proof import Signing
from fedrelay.report.progress import follow
from fedrelay.system.console import PlainConsole, PlainLines

LOG = logging.getLogger("fedrelay")
T = TypeVar("T", bool, float, str)

MARGIN = 60.0
"""Seconds for which Flower keeps a message beyond the longest visit."""


def host_of(grid: Grid, settings: Values, tables: config.Tables, *, run: int = 0) -> Host:
    """The run that [tool.flwr.app.config] and --run-config say; `run` is Flower's number of it."""
    strange = next((key for key in settings if key not in ("clients", "out", *USUAL)), None)
    if strange is not None:
        raise BadInput(f"run config: unknown key {strange!r:.60} (known: clients, out, {', '.join(USUAL)})")
    settings = {**USUAL, **settings}
    patience = Patience(**{item.name: told(settings, item.name, float) for item in fields(Patience)})
    serving = Serving(
        tables,
        own_data=told(settings, "own-data", bool),
        test=path_in(settings, "test"),
        exemplars=path_in(settings, "exemplars"),
        hold_out=told(settings, "hold-out", float),
        out=path_in(settings, "out"),
        resume=told(settings, "resume", bool),
        data_dir=path_in(settings, "data-dir"),
        patience=patience,
    )
    largest = told(settings, "largest", float)
    folder = path_in(settings, "keys")
    if folder is not None:
        keys.read_known(folder)  # what is missing or damaged is refused before anybody comes
    signing = None if folder is None else Signing(folder, run)
    wire = FlowerWire(grid, seconds=patience.deadline + MARGIN, signing=signing)
    known = None if folder is None else partial(keys.why_not, folder)
    return Host(serving, lambda: clients_of(settings), wire, known=known, largest=int(largest * MEGABYTE) or None)


def clients_of(settings: Values) -> tuple[str, ...]:
    """Who takes part."""
    found = names_in(settings)
    if not found:
        raise BadInput('run config: the server must know its clients: clients = "north,south" names them')
    keys.check_names(found)
    return found


def path_in(settings: Values, key: str) -> Path | None:
    """A path, if one is named."""
    text = told(settings, key, str)
    return Path(text).expanduser() if text else None


def told(settings: Values, key: str, kind: type[T]) -> T:
    """A value of the run config; one that is not there is false, zero or empty."""
    value = settings.get(key, kind())
    if kind is float and type(value) is int:
        value = float(value)
    if not isinstance(value, kind):
        raise BadInput(f"run config: {key} is {value!r:.60}, expected a {kind.__name__}")
    return value


def experiment_in(places: Sequence[str]) -> config.Tables:
    """The experiment file of the app, whose folder Flower puts first among those that modules are looked for in."""
    folder = next(
        (Path(one) for one in places if (Path(one) / EXPERIMENT).is_file() and (Path(one) / APP).is_file()), None
    )
    if folder is None:
        raise BadInput(f"there is no {EXPERIMENT} in the app's folder: `fedrelay flower init` makes one")
    return config.read(folder / EXPERIMENT)


def main(grid: Grid, context: Context) -> None:
    """A run, from the first node that comes to the last merge."""
    logged()
    try:
        recorder = host_of(grid, context.run_config, experiment_in(sys.path), run=context.run_id).open()
        LOG.info("results go to %s", recorder.path.resolve())
        follow(recorder, PlainConsole(stderr=True))
    except (BadInput, RunFailed) as error:
        LOG.error("%s", error)
        raise
    LOG.info("done: results are in %s", recorder.path.resolve())


def logged() -> None:
    """What happens, on the stream of errors: `flwr log` shows it."""
    if not LOG.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(PlainLines("%(asctime)s %(levelname)s %(message)s"))
        LOG.addHandler(handler)
        LOG.setLevel(logging.INFO)
        LOG.propagate = False


app = ServerApp()
app.main()(main)
