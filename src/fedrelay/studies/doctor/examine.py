"""All findings, topic by topic."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryFile

from fedrelay.data.locate import VARIABLE, cache_folder, data_folder
from fedrelay.data.sources import FILES
from fedrelay.engines.cluster.machine import SETTINGS, facts
from fedrelay.studies.doctor import on_devices
from fedrelay.studies.doctor.finding import Finding
from fedrelay.studies.doctor.machine import machine
from fedrelay.studies.doctor.packages import compiled, extras, versions
from fedrelay.studies.doctor.self_test import self_test


def examine(data_dir: Path | None = None, *, test: bool = True) -> Iterator[Finding]:
    """What there is to find, as it is found; the self-test comes last and takes seconds."""
    yield from versions()
    yield from machine()
    yield compiled()
    yield from bits()
    yield data(data_dir)
    yield from extras()
    yield writable("cache", cache_folder())
    if test:
        yield from self_test()
        yield from on_devices.findings()


def bits() -> Iterator[Finding]:
    """What of this machine decides the last bits of a result: two that agree in it compute the same."""
    found = facts()
    yield Finding("bits", "instructions", found["processor"])
    chosen = [f"{name}={found[name]}" for name in SETTINGS if found[name] != "not set"]
    yield Finding("bits", "settings", ", ".join(chosen) or "none")
    yield Finding("bits", "sums", f"{found['sums']} (equal on two machines: they compute the same)")


def data(data_dir: Path | None) -> Finding:
    """Which published data sets are here."""
    folder = data_folder(data_dir)
    here = [name for name, entry in FILES.items() if entry.present(folder)]
    remedy = "" if here else f"fedrelay data get NAME, or name the folder: --data-dir or {VARIABLE}"
    return Finding("data", str(folder), ", ".join(here) or "no published data set (digits need no file)", remedy)


def writable(topic: str, folder: Path) -> Finding:
    """Whether files can be written there."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    try:
        with TemporaryFile(dir=there) as file:
            file.write(b"x")
    except OSError as error:
        remedy = "make it writable, or set XDG_CACHE_HOME to another folder"
        return Finding(topic, str(folder), f"cannot be written ({error.strerror})", remedy, wrong=True)
    return Finding(topic, str(folder), "can be written" if there == folder else "will be made when it is needed")
