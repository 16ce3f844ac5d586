"""What is to be predicted, in the form in which a trained model takes it: a table, images, arrays or a data set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import config
from fedrelay.config.federation import DATA, federate
from fedrelay.config.schema import NONE, nearest
from fedrelay.data import Examples
from fedrelay.data.augment import levelled
from fedrelay.data.examples import Store
from fedrelay.data.sources.checks import check_numbers, check_some, wrong
from fedrelay.data.sources.images import SUFFIXES, looked_at, scaled_images
from fedrelay.data.sources.pictures import damaged, pixels
from fedrelay.data.splitfile import UNREADABLE
from fedrelay.data.tables.columns import typed, words
from fedrelay.data.tables.preparation import Preparation
from fedrelay.data.tables.reading import SUFFIXES as TABLE_SUFFIXES
from fedrelay.data.tables.reading import Raw, read
from fedrelay.data.tables.table import Declared
from fedrelay.errors import BadInput
from fedrelay.runs.folder import CONFIG, PREPARATION, read_config
from fedrelay.runs.output import Trained

ARRAYS = (".npy", ".npz")
UNKNOWN = -1
"""In the place of a class that nobody has written down."""


@dataclass(frozen=True)
class Asked:
    """Inputs as they are stored, what each is called, and its class where that is known."""

    examples: Store
    title: str
    """What the names are: of files, or of rows."""
    names: Sequence[str]
    labelled: bool = False


def asked(trained: Trained, data: str, data_dir: Path | None = None) -> Asked:
    """What a path or the name of a data set stands for; what the model does not take is refused."""
    path, name = Path(data).expanduser(), data.lower()
    if path.is_dir():
        return of_images(trained, path)
    if name.endswith((*TABLE_SUFFIXES, *ARRAYS)):
        if not path.is_file():
            raise wrong(path, "a file", "nothing there")
        return of_table(trained, path) if name.endswith(TABLE_SUFFIXES) else of_arrays(trained, path)
    if path.is_file() and not name.endswith(".toml"):
        raise wrong(
            path, f"a folder of images, or a name that ends in {', '.join((*TABLE_SUFFIXES, *ARRAYS))}", path.name
        )
    return of_data_set(trained, data, data_dir)


# --- images


def of_images(trained: Trained, folder: Path) -> Asked:
    """All images below a folder, decoded as those that the model was trained on."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in SUFFIXES)
    if not files:
        raise wrong(folder, "images", f"no file that ends in {', '.join(sorted(SUFFIXES))}")
    shape, kind = trained.one_input("a folder of images has"), trained.facts["stored"]
    deep = trained.facts["levels"] is not None
    if len(shape) != 3 or shape[1] != shape[2] or (deep, kind) not in ((True, "float32"), (False, "uint8")):
        raise wrong(folder, f"inputs of shape {shape} of {kind}", "a folder of images")
    background = config.section_of(read_config(trained.folder / CONFIG), "data").get("background", "white")
    background = None if background == NONE else str(background)
    if looked_at(folder, files)[0] is not deep:
        kinds = "grey images of more than 8 bits", "images of 8 bits a colour"
        raise wrong(folder, *(kinds if deep else reversed(kinds)))
    if shape[0] == 1 and not deep:
        x = np.stack([grey(path, shape[1], background) for path in files])
    else:
        x = scaled_images(files, shape[1], background, deep=deep)
    names = [path.relative_to(folder).as_posix() for path in files]
    return Asked(_examples(trained, x), "file", names)


def grey(path: Path, size: int, background: str | None) -> NDArray[Any]:
    """One image in shades of grey, as bytes (size, size, 1)."""
    from PIL import Image

    try:
        with Image.open(path) as opened:
            return pixels(path, opened, size, background, mode="L")
    except BadInput:
        raise
    except Exception as error:  # a damaged image makes its decoder fail in many ways
        raise damaged(path, error) from None


# --- arrays


def of_arrays(trained: Trained, path: Path) -> Asked:
    """A .npy file of inputs, or a .npz file with `x` and, where classes are known, `y`."""
    try:
        with path.open("rb") as file:
            found = np.load(file, allow_pickle=False)
            arrays = {"x": found} if isinstance(found, np.ndarray) else {key: found[key] for key in found.files}
    except UNREADABLE as error:
        raise wrong(path, "arrays that NumPy has saved", f"another file ({error})") from None
    if "x" not in arrays:
        raise wrong(path, "an array x of inputs", f"only {', '.join(arrays) or 'nothing'}")
    x = stored(trained, path, arrays["x"])
    y = None if "y" not in arrays else _codes(trained, path, "y", [str(label) for label in np.ravel(arrays["y"])])
    if y is not None and len(y) != len(x):
        raise wrong(path, "one class in y for every input in x", f"{len(x)} inputs and {len(y)} classes")
    return Asked(_examples(trained, x, y), "row", _numbered(x), labelled=y is not None)


def stored(trained: Trained, where: Path, x: NDArray[Any]) -> NDArray[Any]:
    """An array as inputs of the model are stored; images may have their channels first or last, grey ones none."""
    shape, kind = trained.one_input("an array has"), str(trained.facts["stored"])
    if x.dtype.kind not in "fiub":
        raise wrong(where, "numbers", str(x.dtype))
    check_some(where, len(x) if x.ndim else 0)
    if len(shape) == 3:
        channels, height, width = shape
        if x.shape[1:] == (height, width) and channels == 1:
            x = x[..., None]
        elif x.shape[1:] == shape and x.shape[1:] != (height, width, channels):
            x = x.transpose(0, 2, 3, 1)
        fits = x.shape[1:] == (height, width, channels)
    else:
        fits = x.shape[1:] == shape
    if not fits:
        raise wrong(where, f"inputs of shape {shape}, as the model takes them", f"{tuple(x.shape[1:])}")
    if kind == "int64":
        outside = int(((x < 0) | (x >= trained.facts["classes"])).sum())
        if x.dtype.kind not in "iu" or outside:
            found = f"{outside} outside" if x.dtype.kind in "iu" else str(x.dtype)
            raise wrong(where, f"tokens from 0 to {trained.facts['classes'] - 1}", found)
        return x.astype(np.int64)
    if trained.facts["levels"] is not None:
        return _floats(where, x)
    if kind == "uint8" and x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise wrong(where, "images of bytes, or of floats from 0 to 1", str(x.dtype))
        check_numbers(where, x, 0, 1)
    return x if x.dtype == kind == "uint8" else _floats(where, x)


def _floats(where: Path, x: NDArray[Any]) -> NDArray[np.float32]:
    with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused
        x = x.astype(np.float32)
    check_numbers(where, x)
    return x


# --- tables


def of_table(trained: Trained, path: Path) -> Asked:
    """The rows of a table, prepared as those that the model was trained on; its label column is judged by, if it has
    one."""
    section = config.section_of(read_config(trained.folder / CONFIG), "data")
    raw = read(path)
    if trained.facts["preparation"]:
        preparation = Preparation.load(trained.folder / PREPARATION)
        x, label = preparation.read(path), preparation.label
    else:
        label, client = str(section.get("label", "label")), str(section.get("client", "client"))
        x = _numbers(trained, raw, [name for name in raw.names if name not in (label, client)])
    check_some(path, len(x))
    judged = label in raw.names and (trained.tells_classes or trained.yes_or_no)
    labels = words(raw, label).tolist() if judged else []
    y = None if all(each is None for each in labels) else _codes(trained, path, label, labels)
    return Asked(_examples(trained, x, y), "row", _numbered(x), labelled=y is not None)


def _numbers(trained: Trained, raw: Raw, columns: Sequence[str]) -> NDArray[np.float32]:
    """Columns of numbers, in the order of the table."""
    shape = trained.one_input("a table has")
    if len(shape) != 1 or len(columns) != shape[0]:
        found = f"{len(columns)} columns of inputs: {', '.join(columns[:10])}{' …' if len(columns) > 10 else ''}"
        raise wrong(raw.name, f"inputs of shape {shape}, as the model takes them", found)
    x = np.empty((raw.table.num_rows, len(columns)), dtype=np.float32)
    for place, name in enumerate(columns):
        column = typed(raw, name, Declared())
        if column.kind != "number":
            raise wrong(raw.name, f"column {name!r} to be numbers", column.kind)
        empty = int((~column.filled).sum())
        if empty:
            raise wrong(raw.name, f"a value in every row of column {name!r}", f"{empty} empty")
        with np.errstate(over="ignore"):  # what is too large becomes infinite, which is refused below
            x[:, place] = column.values
    check_numbers(raw.name, x)
    return x


# --- data sets


def of_data_set(trained: Trained, data: str, data_dir: Path | None) -> Asked:
    """The test part of a data set by its name, or of the [data] section of a TOML file; the one that the run has is
    read as it was in the run."""
    tables = read_config(trained.folder / CONFIG)
    section = config.section_of(tables, "data")
    seed = int(tables.get("seed", 0))
    if data.endswith(".toml"):
        other = config.read(data)
        section, seed = config.section_of(other, "data"), int(other.get("seed", 0))
    elif section.get("name") != data:
        if data not in DATA:
            raise BadInput(f"{data} is no file, no folder and no data set{nearest(data, DATA)}")
        section = {"name": data}
    federation, _ = federate(section, seed, data_dir)
    test = federation.evaluated
    if test.shape != trained.shape:
        raise wrong(data, f"inputs of shape {trained.shape}, as the model takes them", f"{test.shape}")
    source = federation.source
    return Asked(
        test, "row", _numbered(test.y), labelled=test.classified and source.classes == trained.facts["classes"]
    )


# --- what they share


def _examples(trained: Trained, x: NDArray[Any], y: NDArray[np.int64] | None = None) -> Examples:
    if trained.facts["levels"] is not None:
        x = levelled(x, *trained.facts["levels"])
    inputs = torch.from_numpy(np.require(x, requirements=("C", "W")))
    targets = torch.zeros(len(x), dtype=torch.int64) if y is None else torch.from_numpy(y)
    return Examples(inputs, targets, trained.transform)


def _numbered(rows: Sequence[Any] | NDArray[Any] | torch.Tensor) -> list[str]:
    return [str(row) for row in range(len(rows))]


def _codes(trained: Trained, where: Path, column: str, labels: Sequence[str | None]) -> NDArray[np.int64]:
    """Classes by their numbers, where they are known; one that the model does not know is refused."""
    place = {None: UNKNOWN} | {name: number for number, name in enumerate(trained.class_names)}
    odd = sorted({str(label) for label in labels if label not in place})
    if odd:
        count, known = sum(label not in place for label in labels), ", ".join(trained.class_names[:10])
        found = f"{count} of {len(labels)} others: {', '.join(map(repr, odd[:5]))}{' …' if len(odd) > 5 else ''}"
        raise wrong(where, f"classes that the model knows in {column!r} ({known})", f"{found}; leave the column out")
    return np.array([place[label] for label in labels], dtype=np.int64)
