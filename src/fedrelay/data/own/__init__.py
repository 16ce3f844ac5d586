"""Your own data as a federation: arrays per client, tables, frames, a folder per client, or a Hugging Face data set."""

from __future__ import annotations

from pathlib import Path

from fedrelay.data.federation import Federation
from fedrelay.data.own.arrays import from_arrays
from fedrelay.data.own.datasets import from_datasets, from_loaders
from fedrelay.data.own.huggingface import from_dataset, from_partitioner
from fedrelay.data.own.tables import from_frames, from_table
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources.domains import image_folders


def from_folder(
    path: Path | str,
    *,
    size: int = 64,
    test: float = 0.2,
    background: str | None = None,
    levels: tuple[float, ...] | None = None,
    on_disk: bool = False,
) -> Federation:
    """A federation of images <client>/<class>/<image>, scaled to size x size; a share of `test` is held out.

    Pictures of 8 bits are taken in colour. Grey ones with more (16 bits, floats, DICOM with the extra `dicom`) keep
    their depth: the range from the least to the most value of all clients, or the `levels` given, becomes -1 … 1.
    What is transparent is refused, unless a `background` is given (white, say). Files that are left out are listed in
    `federation.source.notes`, and logged.

    With `on_disk` the scaled images stay on disk (in a file that is written once, beside the folder if possible), and
    only those in use are in memory: for folders that do not fit into it. The result is the same.
    """
    path = Path(path).expanduser()
    source = image_folders(
        *(path.name, path), size=size, test=test, background=background, levels=levels, on_disk=on_disk
    )
    return Federation.split(source, Natural())


__all__ = [
    "from_arrays",
    "from_dataset",
    "from_datasets",
    "from_folder",
    "from_frames",
    "from_loaders",
    "from_partitioner",
    "from_table",
]
