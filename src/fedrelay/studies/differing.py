"""In what two configurations differ, key by key: files as they would run, or what runs have written down."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedrelay import config
from fedrelay.errors import BadInput
from fedrelay.report.measures import NONE, settings
from fedrelay.runs.folder import CONFIG, read_config


@dataclass(frozen=True)
class Difference:
    """A key with its values in both, as TOML writes them; None where it is not there."""

    key: str
    one: str | None
    other: str | None

    @property
    def values(self) -> tuple[str | None, str | None]:
        return self.one, self.other

    @property
    def texts(self) -> tuple[str, str, str]:
        return self.key, NONE if self.one is None else self.one, NONE if self.other is None else self.other


def differing(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Difference]:
    """Only what differs, in the order of the first, then of the second."""
    a, b = dict(settings(one)), dict(settings(other))
    return [Difference(key, a.get(key), b.get(key)) for key in {**a, **b} if a.get(key) != b.get(key)]


def tables_of(
    paths: tuple[Path, Path], *, as_written: bool = False, data_dir: Path | None = None
) -> tuple[config.Tables, config.Tables, list[str]]:
    """The configurations of two files or run folders, and what there is to say of them.

    Files are resolved: every default filled in, as in the `config.toml` of a run. Where one cannot be (its data is not
    here, say, or it is a comparison), both are taken as they are written.
    """
    written = [read_config(path / CONFIG) if path.is_dir() else config.read(path) for path in paths]
    if as_written:
        return written[0], written[1], []
    found: list[config.Tables] = []
    for path, tables in zip(paths, written, strict=True):
        try:
            found.append(tables if path.is_dir() else resolved(tables, data_dir))
        except BadInput as error:
            remark = f"{path} cannot be resolved, so both are compared as they are written ({error})"
            return written[0], written[1], [remark]
    return found[0], found[1], []


def resolved(tables: config.Tables, data_dir: Path | None) -> config.Tables:
    """With every default filled in."""
    experiment = config.build(tables, data_dir)
    experiment.engine.close()
    return experiment.tables
