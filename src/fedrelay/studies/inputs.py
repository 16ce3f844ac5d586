"""What is to be predicted, in the form in which a trained model takes it: a table, images, arrays or a data set."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from fedrelay import config
from fedrelay.config.federation import DATA, federate
from fedrelay.config.schema import nearest
from fedrelay.data import Examples
from fedrelay.data.federation import Prepares
from fedrelay.data.sources.checks import check_numbers, check_some, wrong
from fedrelay.data.sources.images import SUFFIXES
from fedrelay.errors import BadInput
from fedrelay.runs.folder import CONFIG, PREPARATION, read_config
from fedrelay.runs.output import Trained

TABLES = (".csv", ".csv.gz", ".tsv", ".tsv.gz", ".parquet", ".pq")
ARRAYS = (".npy", ".npz")

PREPARATIONS: dict[str, Callable[[Mapping[str, Any]], Prepares]] = {}
"""How a saved preparation becomes one again, by the kind of data that it prepares."""


@dataclass(frozen=True)
class Asked:
    """Inputs as they are stored, what each is called, and its class where that is known."""

    examples: Examples
    title: str
    """What the names are: of files, or of rows."""
    names: Sequence[str]
    labelled: bool = False


def asked(trained: Trained, data: str, data_dir: Path | None = None) -> Asked:
    """What a path or the name of a data set stands for; what the model does not take is refused."""
    path, name = Path(data).expanduser(), data.lower()
    if path.is_dir():
        return of_images(trained, path)
    if name.endswith((*TABLES, *ARRAYS)):
        if not path.is_file():
            raise wrong(path, "a file", "nothing there")
        return of_table(trained, path) if name.endswith(TABLES) else of_arrays(trained, path)
    if path.is_file() and not name.endswith(".toml"):
        raise wrong(path, f"a folder of images, or a name that ends in {', '.join((*TABLES, *ARRAYS))}", path.name)
    return of_data_set(trained, data, data_dir)


# --- images


def of_images(trained: Trained, folder: Path) -> Asked:
    """All images below a folder, scaled to the size of the model's inputs."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and path.suffix.lower() in SUFFIXES)
    if not files:
        raise wrong(folder, "images", f"no file that ends in {', '.join(sorted(SUFFIXES))}")
    if len(trained.shape) != 3 or trained.shape[0] not in (1, 3) or trained.facts["stored"] != "uint8":
        raise wrong(folder, f"inputs of shape {trained.shape} of {trained.facts['stored']}", "a folder of images")
    pixels = np.stack([picture(path, trained.shape) for path in files])
    names = [path.relative_to(folder).as_posix() for path in files]
    return Asked(_examples(trained, pixels), "file", names)


def picture(path: Path, shape: Sequence[int]) -> NDArray[np.uint8]:
    """One image as it is stored for training: (height, width, channels) of bytes."""
    from PIL import Image

    channels, height, width = shape
    try:
        with Image.open(path) as opened:
            if channels == 3:
                opened.draft("RGB", (2 * width, 2 * height))  # as in training: so the bytes are the same
            image = opened.convert("RGB" if channels == 3 else "L")
    except Exception as error:  # a damaged image makes its decoder fail in many ways
        raise wrong(path, "an image", f"a damaged or other file ({type(error).__name__}: {error})") from None
    if image.size != (width, height):
        image = image.resize((width, height), Image.Resampling.BILINEAR, reducing_gap=2.0)
    return np.asarray(image, dtype=np.uint8).reshape(height, width, channels)


# --- arrays


def of_arrays(trained: Trained, path: Path) -> Asked:
    """A .npy file of inputs, or a .npz file with `x` and, where classes are known, `y`."""
    try:
        found = np.load(path, allow_pickle=False)
        arrays = {"x": found} if isinstance(found, np.ndarray) else {key: found[key] for key in found.files}
    except (OSError, ValueError, EOFError) as error:
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
    shape, kind = trained.shape, str(trained.facts["stored"])
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
    if kind == "uint8" and x.dtype != np.uint8:
        if x.dtype.kind != "f":
            raise wrong(where, "images of bytes, or of floats from 0 to 1", str(x.dtype))
        check_numbers(where, x, 0, 1)
        return x.astype(np.float32)
    x = x if kind == "uint8" else x.astype(np.float32)
    check_numbers(where, x)
    return x


# --- tables


def of_table(trained: Trained, path: Path) -> Asked:
    """The rows of a table, prepared as those that the model was trained on; its label column is judged by, if it has
    one."""
    section = config.section_of(read_config(trained.folder / CONFIG), "data")
    label, client = str(section.get("label", "label")), str(section.get("client", "client"))
    prepared = preparation_of(trained)
    table = _arrow(path)
    if prepared is not None:
        preparation, label = prepared
        x = preparation.read(path)
    else:
        x = _numbers(trained, path, table, [name for name in table.column_names if name not in (label, client)])
    y = None
    if label in table.column_names:
        y = _codes(trained, path, label, [None if each is None else str(each) for each in table[label].to_pylist()])
    return Asked(_examples(trained, x, y), "row", _numbered(x), labelled=y is not None)


def preparation_of(trained: Trained) -> tuple[Prepares, str] | None:
    """How the table was prepared that the model was trained on, and the column of its labels."""
    if not trained.facts["preparation"]:
        return None
    path = trained.folder / PREPARATION
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
        kind = values.get("kind", "table")
    except (OSError, ValueError, AttributeError) as error:
        raise wrong(path, "a preparation as it was saved", f"another file ({error})") from None
    if kind not in PREPARATIONS:
        raise wrong(path, f"a preparation of {', '.join(PREPARATIONS) or 'a known kind'}", f"one of {kind}")
    return PREPARATIONS[kind](values), str(values.get("label") or "label")


def _numbers(trained: Trained, path: Path, table: Any, columns: Sequence[str]) -> NDArray[np.float32]:
    """Columns of numbers, in the order of the table."""
    if len(trained.shape) != 1 or len(columns) != trained.shape[0]:
        found = f"{len(columns)} columns of inputs: {', '.join(columns[:10])}{' …' if len(columns) > 10 else ''}"
        raise wrong(path, f"inputs of shape {trained.shape}, as the model takes them", found)
    check_some(path, table.num_rows)
    parts = []
    for name in columns:
        if table[name].null_count:
            raise wrong(path, f"a value in every row of column {name!r}", f"{table[name].null_count} empty")
        values = table[name].to_numpy()
        if values.dtype.kind not in "iufb":
            raise wrong(path, f"column {name!r} to be numbers", str(table[name].type))
        parts.append(np.asarray(values, dtype=np.float32))
    x = np.stack(parts, axis=1)
    check_numbers(path, x)
    return x


def _arrow(path: Path) -> Any:
    try:
        import pyarrow as arrow
        from pyarrow import csv, parquet
    except ImportError:
        raise BadInput('reading tables needs pyarrow: pip install "fedrelay[table]"') from None
    try:
        if path.suffix in (".parquet", ".pq"):
            return parquet.read_table(path)
        return csv.read_csv(path, parse_options=csv.ParseOptions(delimiter="\t" if ".tsv" in path.suffixes else ","))
    except (arrow.ArrowException, OSError, ValueError) as error:
        raise wrong(path, "a whole table", f"a damaged one ({error})") from None


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
        test, "row", _numbered(test.y), labelled=test.y.ndim == 1 and source.classes == trained.facts["classes"]
    )


# --- what they share


def _examples(trained: Trained, x: NDArray[Any], y: NDArray[np.int64] | None = None) -> Examples:
    inputs = torch.from_numpy(np.require(x, requirements=("C", "W")))
    targets = torch.zeros(len(x), dtype=torch.int64) if y is None else torch.from_numpy(y)
    return Examples(inputs, targets, trained.transform)


def _numbered(rows: Sequence[Any] | NDArray[Any] | torch.Tensor) -> list[str]:
    return [str(row) for row in range(len(rows))]


def _codes(trained: Trained, where: Path, column: str, labels: Sequence[str | None]) -> NDArray[np.int64]:
    """Classes by their numbers; one that the model does not know is refused."""
    place = {name: number for number, name in enumerate(trained.class_names)}
    odd = sorted({str(label) for label in labels if label not in place})
    if odd:
        count, known = sum(label not in place for label in labels), ", ".join(trained.class_names[:10])
        found = f"{count} of {len(labels)} others: {', '.join(map(repr, odd[:5]))}{' …' if len(odd) > 5 else ''}"
        raise wrong(where, f"classes that the model knows in {column!r} ({known})", f"{found}; leave the column out")
    return np.array([place[label] for label in labels if label is not None], dtype=np.int64)
