"""What a client brings: a table, arrays, or what a function of its own returns."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedrelay.data.own.arrays import Pair
from fedrelay.data.own.brought import ArraysBrought, Brought, TableBrought
from fedrelay.data.own.brought_pictures import PicturesBrought
from fedrelay.data.tables.reading import SUFFIXES
from fedrelay.errors import BadInput

FUNCTION = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


@dataclass(frozen=True)
class Bringing:
    """What `--data` says: the file of a table (.csv, .tsv, .parquet), a folder of pictures <class>/<image>, arrays
    (.npz with x and y), or module:function, which returns a pair of arrays (inputs, targets) or a frame."""

    what: str

    def open(self, name: str, data: Mapping[str, Any]) -> Brought:
        """The client's data, read as the server's [data] says."""
        if FUNCTION.fullmatch(self.what):
            found = called(self.what)
            return ArraysBrought(name, found) if isinstance(found, tuple) else TableBrought.read(found, name, data)
        path = Path(self.what).expanduser()
        if path.is_dir():
            return PicturesBrought.read(path, name, data)
        if not path.is_file():
            raise BadInput(f"--data {self.what:.200}: expected a table, a folder, arrays (.npz), or module:function")
        if path.suffix == ".npz":
            return ArraysBrought(name, arrays_in(path))
        if path.name.lower().endswith(SUFFIXES):
            return TableBrought.read(path, name, data)
        raise BadInput(f"--data {self.what:.200}: expected a name that ends in .npz, {', '.join(SUFFIXES)}")


def arrays_in(path: Path) -> Pair:
    """The arrays x and y of an .npz file; nothing in it is run."""
    try:
        with np.load(path, allow_pickle=False) as found:
            return found["x"], found["y"]
    except (OSError, ValueError, KeyError, EOFError) as error:
        raise BadInput(f"{path}: expected arrays x (inputs) and y (targets) in an .npz file, found {error}") from None


def called(what: str) -> Any:
    """What a function of the user's returns. It is named on this client's command line, never by the server."""
    module, _, name = what.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a file in the folder where the command runs
    try:
        function: Callable[[], Any] = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise BadInput(f"--data {what}: {error}") from None
    return function()
