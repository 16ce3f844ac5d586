"""HDF5: the layout of the public federated data sets, examples/<client>/<column>, and single columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedrelay.data.sources.checks import check_clients, wrong
from fedrelay.errors import BadInput


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """The file, with whatever is wrong with it said in our words."""
    import h5py  # here, because it takes a while and few data sets need it

    try:
        with h5py.File(path, "r") as file:
            yield file
    except BadInput:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError) as error:
        raise wrong(path, "a whole HDF5 file", f"a damaged one ({error})") from None


def column(path: Path, file: Any, name: str) -> NDArray[Any]:
    """One data set of the file, read whole."""
    import h5py

    found = file.get(name)
    if not isinstance(found, h5py.Dataset):
        raise wrong(path, f"a data set {name!r}", f"only {', '.join(map(repr, list(file)[:10])) or 'nothing'}")
    values: NDArray[Any] = np.asarray(found[()])
    return values


def clients(
    path: Path, columns: Sequence[str], most: int | None = None
) -> Iterator[tuple[str, dict[str, NDArray[Any]]]]:
    """The columns of every client (or of the first `most`), all of one length."""
    with opened(path) as file:
        group = file.get("examples")
        if group is None:
            raise wrong(path, "a group 'examples'", f"only {', '.join(map(repr, list(file)[:10])) or 'nothing'}")
        for name in islice(group, most):
            found = {key: column(path, group[name], key) for key in columns}
            sizes = [len(values) for values in found.values()]
            if len(set(sizes)) > 1:
                raise wrong(path, f"columns of one length for client {name!r}", f"lengths {sizes}")
            check_clients(path, [name], sizes[:1])
            yield name, found
