"""The folder of a Flower app: what `flwr run` reads. It holds no code, for the app is in the installed package."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import tomli_w

from fedrelay import config
from fedrelay.engines.remote import Patience
from fedrelay.errors import BadInput
from fedrelay.remote.hosting import check_fits
from fedrelay.remote.keys import check_names
from fedrelay.system import files

APP, EXPERIMENT, README = "pyproject.toml", "experiment.toml", "README.md"
USUAL: Mapping[str, bool | float | str] = {
    "resume": False,
    "own-data": False,
    "test": "",
    "exemplars": "",
    "hold-out": 0.0,
    "data-dir": "",
    "largest": 0.0,
    "keys": "",
    **asdict(Patience(grace=60.0)),  # until a client that is lost is asked again there are two messages, seconds each
}
"""What --run-config can change, beside `clients` and `out`: Flower takes only what an app has already."""
LONGEST = 40
"""Letters of the name of an app."""
TEXT = """# {name}

A Flower app of fedrelay: `flwr run` runs `{experiment}` on a Flower federation. It holds no code: `fedrelay[flower]` is
installed, in the same version, where the SuperLink and the SuperNodes run, and Flower finds the app there.
Clients: {clients}. Each is a SuperNode with `--node-config 'name="{first}"{data}'`.
Results are at the SuperLink, in `out` of `{app}`; `flwr run . --run-config resume=true` goes on with a run.
"""


@dataclass(frozen=True)
class App:
    """A Flower app.

    Args:
        tables: the configuration.
        clients: who takes part.
        own_data: whether clients bring their own data; else each takes its part of what [data] names.
        test: a file of the server's own to test on, where clients bring theirs.
        out: the run's folder, where the SuperLink runs.
    """

    tables: Mapping[str, Any]
    clients: tuple[str, ...]
    own_data: bool = False
    test: str = ""
    out: str = ""

    def check(self, data_dir: Path | None) -> None:
        """Refuse what cannot be run with these clients, as far as that can be known here."""
        if not self.clients:
            raise BadInput("the server must know its clients: --clients north,south names them")
        check_names(self.clients)
        if self.test and not self.own_data:
            raise BadInput("--test is for clients that bring their own data: --own-data says so")
        if not self.own_data:
            experiment = config.build({**self.tables, "engine": {"name": "inline"}}, data_dir)
            check_fits(experiment.algorithm, experiment.federation, self.clients)


def write(app: App, folder: Path) -> None:
    """Write the folder, which must be new or empty."""
    name = name_of(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise BadInput(f"{folder} is not empty: nothing is overwritten; name another folder")
        told = TEXT.format(
            name=name,
            experiment=EXPERIMENT,
            clients=", ".join(sorted(app.clients)),
            first=min(app.clients),
            data=' data="/srv/patients.csv"' if app.own_data else "",
            app=APP,
        )
        files.write(folder / EXPERIMENT, tomli_w.dumps(app.tables).encode())
        files.write(folder / README, told.encode())
        files.write(folder / APP, tomli_w.dumps(project(app, name)).encode())
    except OSError as error:
        raise BadInput(f"{folder} cannot be written ({error.strerror or error}): name another folder") from None


def project(app: App, name: str) -> dict[str, Any]:
    """What pyproject.toml says."""
    settings: dict[str, Any] = {"clients": ",".join(sorted(app.clients)), "out": app.out or f"runs/{name}"}
    settings |= {**USUAL, "own-data": app.own_data, "test": app.test}
    components = {
        "serverapp": "fedrelay.remote.flower.server:app",
        "clientapp": "fedrelay.remote.flower.client:app",
    }
    return {
        "project": {
            "name": name,
            "version": "1.0.0",
            "description": "An experiment of fedrelay on a Flower federation",
            "license": "LicenseRef-Unstated",
            "dependencies": [],  # Flower installs nothing: fedrelay is there
        },
        "tool": {"flwr": {"app": {"publisher": "fedrelay", "components": components, "config": settings}}},
    }


def name_of(folder: Path) -> str:
    """A name that Flower takes: letters, digits and dashes."""
    found = re.sub(r"[^A-Za-z0-9]+", "-", folder.absolute().name).strip("-")[:LONGEST]
    return found if found[:1].isalpha() else f"app-{found}".strip("-")
