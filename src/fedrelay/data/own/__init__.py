"""Your own data as a federation: arrays per client, tables, frames, a folder per client, or a Hugging Face data set."""

from __future__ import annotations

from pathlib import Path

from fedrelay.data.federation import Federation
from fedrelay.data.own.arrays import from_arrays
from fedrelay.data.own.huggingface import from_dataset, from_partitioner
from fedrelay.data.own.tables import from_frames, from_table
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources.domains import image_folders


def from_folder(path: Path | str, *, size: int = 64, test: float = 0.2) -> Federation:
    """A federation of images <client>/<class>/<image>, scaled to size x size; a share of `test` is held out."""
    path = Path(path).expanduser()
    return Federation.split(image_folders(path.name, path, size=size, test=test), Natural())


__all__ = ["from_arrays", "from_dataset", "from_folder", "from_frames", "from_partitioner", "from_table"]
