"""A first experiment file: it runs as it is, and says above every key what it means, as docs/configuration.md does."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import tomli_w

from fedrelay.algorithms import method
from fedrelay.config import Tables, catalogue
from fedrelay.config.federation import DATA
from fedrelay.errors import BadInput, within
from fedrelay.runs.summary import Evaluate
from fedrelay.studies.configuration_page import keys_of
from fedrelay.studies.configuration_words import DATA as DATA_WORDS
from fedrelay.studies.configuration_words import LOCAL, NUMBERS, WORDS

Matters = Literal["rounds", "traffic", "time"]
MATTERS: dict[Matters, str] = {
    "rounds": "few rounds",
    "traffic": "little traffic",
    "time": "a short time",
}
"""What a federation can be short of."""

MODELS = {
    **dict.fromkeys(("digits", "synthetic"), "mlp"),
    **dict.fromkeys(("diabetes", "table"), "logistic"),
    **dict.fromkeys(("mnist", "fashion-mnist", "emnist", "usps", "femnist", "folder"), "small_cnn"),
    "shakespeare": "char_lstm",
    "stackoverflow": "word_lstm",
}
"""A model that learns something of the data in minutes; lenet5 of any other images."""
OWNED = ("femnist", "shakespeare", "stackoverflow", "pacs", "office-caltech-10", "office-31", "office-home")
"""Data sets whose examples have owners, who are the clients unless it is said how unlike they are to be."""
TABLES = (".csv", ".tsv", ".parquet")
ALIKE = 1.0
"""From this alpha on, class mixes are so alike that order gains little."""
WIDTH = 100


@dataclass(frozen=True)
class Wanted:
    """What the three questions ask for."""

    data: str = "digits"
    """A data set by name, or the path of a table, of a folder of tables, or of a folder of pictures."""
    alpha: float | None = None
    """How unlike the clients are; None: by their owners where there are some, else 0."""
    client: str | None = None
    """Of a table, the column that says whose row it is."""
    label: str | None = None
    """Of a table, the column that is to be predicted."""
    matters: Matters = "rounds"
    clients: int | None = None

    @property
    def name(self) -> str:
        """What [data] calls it."""
        return self.data if self.data in DATA and self.data not in ("table", "folder") else kind_of(Path(self.data))

    @property
    def own(self) -> bool:
        return self.name in ("table", "folder")

    @property
    def unlike(self) -> float | None:
        """The alpha that the data is split by; None where it has owners."""
        if self.own or (self.alpha is None and self.name in OWNED):
            return None
        return 0.0 if self.alpha is None else self.alpha


def kind_of(path: Path) -> str:
    """Whether data of one's own is a table or a folder of pictures."""
    path = path.expanduser()
    if path.is_dir():
        return "table" if any(file.suffix.lower() in TABLES for file in path.iterdir()) else "folder"
    if path.suffix.lower() in TABLES:
        return "table"
    raise BadInput(
        f"{str(path)!r:.200} is no data: name a data set (`fedrelay data list` has them), a table "
        f"({', '.join(TABLES)}), a folder of tables, or a folder of pictures CLIENT/CLASS/PICTURE"
    )


def tables_of(wanted: Wanted) -> Tables:
    """The configuration, as one would write it: only what is worth saying."""
    name, unlike = wanted.name, wanted.unlike
    data: Tables = {"name": name}
    if wanted.own:
        data["path"] = wanted.data
        said = {"client": wanted.client, "label": wanted.label} if name == "table" else {}
        data |= {key: value for key, value in said.items() if value is not None}
    if unlike is not None:
        within("alpha", unlike, least=0)
        data |= {"clients": wanted.clients or 100, "partition": {"name": "dirichlet", "alpha": unlike}}
    chains = wanted.matters == "traffic" or (wanted.matters == "rounds" and (unlike is None or unlike < ALIKE))
    return {
        "rounds": 100,
        "seed": 0,
        "data": data,
        "model": {"name": MODELS.get(name, "lenet5")},
        "local": {"epochs": 1, "batch": 16 if name == "digits" else 32, "lr": rate(name, chains=chains)},
        "algorithm": {"name": "fedseq" if chains else "fedavg"},
        "evaluate": {"every": 5},
    }


def rate(name: str, *, chains: bool) -> float:
    """A learning rate to begin with."""
    if name in ("shakespeare", "stackoverflow"):
        return 0.3 if chains else 1.0
    return 0.03 if chains and name != "digits" else 0.1


def why(tables: Mapping[str, Any], wanted: Wanted) -> dict[tuple[str, str], str]:
    """What these values have to do with the answers, by section and key."""
    chains = tables["algorithm"]["name"] == "fedseq"
    reasons = {
        ("fedseq", "rounds"): "chains of unlike clients: every model that is averaged has seen a mix like the whole",
        ("fedseq", "traffic"): "models go from client to client: about half of what FedAvg sends for as many visits",
        ("fedavg", "rounds"): "clients are so alike that order gains little; nothing is simpler",
        ("fedavg", "time"): "all clients of a round train at once, so that it takes no longer than the slowest of them",
    }
    found = {
        ("algorithm", "name"): f"for {MATTERS[wanted.matters]}: {reasons[tables['algorithm']['name'], wanted.matters]}"
    }
    if "partition" in tables["data"]:
        found["data", "partition"] = f"alpha: {WORDS['alpha']}"
    if chains:
        found["local", "lr"] = "chains want a smaller one than FedAvg, divided by up to their length"
    return found


def written(tables: Mapping[str, Any], wanted: Wanted, name: str) -> str:
    """The file."""
    parts = [*opening(name), ""]
    reasons = why(tables, wanted)
    sections: dict[str, Mapping[str, Any]] = {"": {k: v for k, v in tables.items() if not isinstance(v, Mapping)}}
    sections |= {key: value for key, value in tables.items() if isinstance(value, Mapping)}
    for section, values in sections.items():
        known = meanings(section, tables)
        parts += [f"[{section}]"] if section else []
        for key, value in values.items():
            parts += [*comment(known[key]), *comment(reasons.get((section, key), "")), f"{key} = {inline(value)}"]
        parts.append("")
    return "\n".join(parts)


def opening(name: str) -> Iterator[str]:
    yield "# An experiment, written by `fedrelay init`. Every key that there is: docs/configuration.md."
    yield "#"
    for command, text in (
        (f"fedrelay data show {name}", "what every client has, before any training"),
        (f"fedrelay run {name}", "train"),
        (
            f"fedrelay run {name} --set algorithm.name=fedavg",
            "another method; then: fedrelay report DIR DIR",
        ),
        (f"fedrelay tune {name} --lr 0.01,0.03,0.1,0.3", "find a learning rate"),
    ):
        yield f"#     {command:<58} # {text}"


def meanings(section: str, tables: Mapping[str, Any]) -> dict[str, str]:
    """What the keys of a section mean, as the page has it."""
    if not section:
        return {key: plain(text) for key, (_, text) in NUMBERS.items()}
    name = tables[section].get("name")
    said: Mapping[str, tuple[str, str]] = {"data": DATA_WORDS, "local": LOCAL}.get(section, {})
    found = {key: text for key, (_, text) in said.items()}
    if section == "evaluate":
        targets = [Evaluate]
    elif section == "algorithm":
        targets = [method, catalogue.targets("algorithms")[name]]  # type: ignore[list-item]
    else:
        kind = {"data": "data", "model": "models", "local": "optimisers"}[section]
        targets = [catalogue.targets(kind)[name or "sgd"]]  # type: ignore[list-item]
    found |= {key.strip("`"): text for target in targets for key, _, _, text in keys_of(target)}
    if section in ("data", "model", "algorithm"):
        found["name"] = f"{catalogue.about(targets[-1])}"
    return {key: plain(text) for key, text in found.items()}


def plain(text: str) -> str:
    """Without Markdown."""
    return re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text).replace("**", "").replace("`", "")


def comment(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent="# ", subsequent_indent="# ")


def inline(value: Any) -> str:
    """A value in one line of TOML."""
    if isinstance(value, Mapping):
        return "{ " + ", ".join(f"{key} = {inline(item)}" for key, item in value.items()) + " }"
    return tomli_w.dumps({"x": value}).partition("=")[2].strip()
