"""Which class most examples of every client have, where that is known: a file of the run folder, for pictures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from fedrelay.data.federation import Federation
from fedrelay.errors import BadInput
from fedrelay.runs.folder import LABELS, keep
from fedrelay.runs.json_files import Damaged, dumps, listed, need, parsed, read

MOST_CLIENTS = 20_000
"""Nobody can tell more of them apart."""


@dataclass(frozen=True)
class Labels:
    """The main class of every client, and what classes are called, in order."""

    classes: tuple[str, ...]
    main: tuple[int, ...]


def labels_of(federation: Federation | None) -> Labels | None:
    """None where examples have no one class, only clients know it, or there are very many clients."""
    if federation is None or len(federation) > MOST_CLIENTS or federation.classes_of_clients() is None:
        return None
    counts, names = federation.label_counts(), federation.source.class_names
    main = tuple(counts.argmax(axis=1).tolist())
    return Labels(tuple(names) or tuple(f"class {number}" for number in range(counts.shape[1])), main)


def write_labels(folder: Path, federation: Federation | None) -> None:
    found = labels_of(federation)
    if found is not None:
        keep(folder / LABELS, dumps(asdict(found)) + "\n")


def read_labels(folder: Path) -> Labels | None:
    """None if the folder has none, as those of older versions, or they are damaged: a picture can do without."""
    try:
        found = parsed(read(folder / LABELS, ""))
        listed(found.get("main"), "main")
        classes = found.get("classes")
        need(isinstance(classes, list) and all(isinstance(one, str) for one in classes), "classes", classes)
        return Labels(tuple(found["classes"]), tuple(map(int, found["main"])))
    except (BadInput, Damaged):
        return None
