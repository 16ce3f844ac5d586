"""Every reader of files with a few small files that it can read: what a fuzzer begins with."""

from __future__ import annotations

import bz2
import gzip
import io
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import published

Lay = Callable[[Path, bytes], None]
"""Puts the damaged file, and whole ones beside it, into a folder."""


@dataclass(frozen=True)
class Reader:
    """`seeds` makes whole files, `lay` puts one of them (or what became of it) where `read` looks for it."""

    name: str
    seeds: Callable[[], list[bytes]]
    lay: Lay
    read: Callable[[Path], object]


def at(name: str, change: Callable[[bytes], bytes] = bytes) -> Lay:
    """A single file of this name; with a change, which a fuzzer need not guess (it is compressed, say)."""

    def lay(folder: Path, data: bytes) -> None:
        published.write(folder / name, change(data))

    return lay


X, Y = published.pixels(3, 28, 28), np.arange(3, dtype=np.uint8)
BATCHES = ("data_batch_1", "data_batch_2", "data_batch_3", "data_batch_4", "data_batch_5", "test_batch")


def written(write: Callable[[io.BytesIO], object]) -> bytes:
    stream = io.BytesIO()
    write(stream)
    return stream.getvalue()


# --- published data sets


def lay_mnist(folder: Path, data: bytes) -> None:
    published.mnist_folder(folder, X, Y, zipped=False)
    published.write(folder / "t10k-labels-idx1-ubyte", data)


def lay_cifar(suffix: str, whole: Callable[[], bytes]) -> Lay:
    def lay(folder: Path, data: bytes) -> None:
        for name in BATCHES:
            published.write(folder / f"{name}{suffix}", data if name == "data_batch_2" else whole())

    return lay


@cache
def pickled() -> bytes:
    return published.cifar_batch(X[:2, :, :, None].repeat(3, 3)[:, :1, :1].repeat(32, 1).repeat(32, 2), Y[:2])


@cache
def records() -> bytes:
    return bytes(2 * 3073)


@cache
def femnist_json() -> bytes:
    return published.leaf({"f0_00": ([[0.5] * 784], [3]), "f1_00": ([[0.0] * 784, [1.0] * 784], [61, 0])})


@cache
def roles_json() -> bytes:
    return published.leaf({"PLAY_ROLE": (["x" * 80, "to be or " * 8 + "not to b"], ["y", "e"])})


def lay_leaf(whole: Callable[[], bytes]) -> Lay:
    def lay(folder: Path, data: bytes) -> None:
        published.leaf_folder(folder, data, whole())

    return lay


@cache
def femnist_npz() -> bytes:
    arrays = {"x": X, "y": Y, "writer": np.zeros(3, np.int16), "is_test": np.array([0, 0, 1], np.uint8)}
    return written(lambda stream: np.savez(stream, **arrays, writer_names=np.array(["a"])))


@cache
def h5_of(kind: str) -> bytes:
    import h5py

    def write(stream: io.BytesIO) -> None:
        with h5py.File(stream, "w") as file:
            if kind == "usps":
                for part in ("train", "test"):
                    file[f"{part}/data"] = np.zeros((2, 256), np.float32)
                    file[f"{part}/target"] = np.array([1, 2])
            elif kind == "femnist":
                file["examples/f0/pixels"] = np.zeros((2, 28, 28), np.float32)
                file["examples/f0/label"] = np.array([1, 2], np.int32)
            else:
                file.create_dataset("examples/7/tokens", data=["how to sort", "sort how"], dtype=h5py.string_dtype())

    return written(write)


def lay_two(train: str, test: str, whole: Callable[[], bytes]) -> Lay:
    def lay(folder: Path, data: bytes) -> None:
        published.write(folder / train, data)
        published.write(folder / test, whole())

    return lay


@cache
def mats() -> list[bytes]:
    import scipy.io

    variables = {"X": np.zeros((32, 32, 3, 2), np.uint8), "y": np.array([[10], [3]], dtype=np.uint8)}
    return [
        written(lambda stream, pack=pack: scipy.io.savemat(stream, variables, do_compression=pack)) for pack in (0, 1)
    ]


SVM = b"1 1:-1 2:0.5 256:1\n10 3:0.25\n"

# --- own data

TABLE = "client,label,age,town,day\n" + "".join(f"c{n % 2},{n % 3},{n},t{n % 4},2026-01-0{n + 1}\n" for n in range(9))


@cache
def parquet() -> bytes:
    import pyarrow
    from pyarrow import parquet as writer

    columns = {"client": ["a", "b"] * 4, "label": [0, 1] * 4, "age": [1.5 * n for n in range(8)]}
    return written(lambda stream: writer.write_table(pyarrow.table(columns), stream))


def pictures(*formats: str) -> Callable[[], list[bytes]]:
    def make() -> list[bytes]:
        from PIL import Image

        image = Image.fromarray(np.arange(192, dtype=np.uint8).reshape(8, 8, 3))
        return [written(lambda stream, one=one: image.save(stream, one)) for one in formats]

    return make


def lay_picture(suffix: str) -> Lay:
    def lay(folder: Path, data: bytes) -> None:
        for client in ("north", "south"):
            for name in "ab":
                published.picture(folder / client / "ill" / f"{name}.png", (9, 9, 9), (8, 8))
        published.write(folder / "north" / "ill" / f"c{suffix}", data)

    return lay


@cache
def dicoms() -> list[bytes]:
    import pydicom

    meta = pydicom.dataset.FileMetaDataset()
    meta.TransferSyntaxUID = pydicom.uid.ExplicitVRLittleEndian
    meta.MediaStorageSOPClassUID = pydicom.uid.SecondaryCaptureImageStorage
    meta.MediaStorageSOPInstanceUID = "1.2.3"
    made = pydicom.dataset.FileDataset("x", {}, file_meta=meta, preamble=b"\0" * 128)
    made.Rows, made.Columns, made.SamplesPerPixel, made.PhotometricInterpretation = 8, 8, 1, "MONOCHROME2"
    made.BitsAllocated, made.BitsStored, made.HighBit, made.PixelRepresentation = 16, 12, 11, 0
    made.PixelData = np.arange(64, dtype="<u2").tobytes()
    return [written(lambda stream: made.save_as(stream, enforce_file_format=True))]


# --- archives and splits


@cache
def archives(kind: str) -> list[bytes]:
    def zipped(stream: io.BytesIO) -> None:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("data/a.txt", b"a" * 500)
            file.writestr("data/b.txt", b"b")

    def tarred(mode: str, links: bool, stream: io.BytesIO) -> None:
        members = [("data/a.txt", ""), ("data/b.txt", "")]
        members += [("data/link", "a.txt"), ("data/up", "../a.txt")] if links else []
        with tarfile.open(fileobj=stream, mode=mode) as file:
            for name, link in members:
                member = tarfile.TarInfo(name)
                member.size = 0 if link else 500
                member.type, member.linkname = (tarfile.SYMTYPE, link) if link else (tarfile.REGTYPE, "")
                file.addfile(member, io.BytesIO(b"a" * member.size))

    if kind == "zip":
        return [written(zipped)]
    return [written(partial(tarred, mode, links)) for mode in kind.split(",") for links in (False, True)]


def unpacked(folder: Path) -> None:
    """Unpack it two folders down, and see that nothing has come to lie above."""
    from fedrelay.data.download import unpack

    (folder / "above" / "here").mkdir(parents=True)
    try:
        unpack(folder / "archive", folder / "above" / "here")
    finally:
        strays = [path.name for path in (*folder.iterdir(), *(folder / "above").iterdir())]
        if sorted(strays) != ["above", "archive", "here"]:
            raise RuntimeError(f"an archive was unpacked outside of its folder: {strays}")


@cache
def some_federation() -> Any:
    import torch

    from fedrelay.data import Federation, Iid
    from fedrelay.data.federation import Examples, Source

    own = Examples(torch.zeros(8, 2), torch.arange(8) % 2)
    return Federation.split(Source("small", own, own, classes=2), Iid(), 2, 0)


@cache
def split_file() -> bytes:
    import tempfile

    from fedrelay.data.splitfile import save_split

    with tempfile.TemporaryDirectory() as folder:
        return save_split(some_federation(), Path(folder) / "split.npz").read_bytes()


def read_split(folder: Path) -> object:
    from fedrelay.data.splitfile import load_split

    return load_split(some_federation().source, folder / "split.npz")


def arrays() -> list[bytes]:
    made = {"x": np.zeros((3, 2), np.float32), "y": np.array(["a", "b", "a"])}
    return [
        written(lambda stream: np.savez(stream, **made)),
        written(lambda stream: np.savez_compressed(stream, **made)),
    ]


def read_arrays(folder: Path) -> object:
    from fedrelay.runs.output import Trained
    from fedrelay.studies.inputs import of_arrays

    facts = {"shape": [2], "stored": "float32", "levels": None, "classes": 2, "class_names": ["a", "b"]}
    return of_arrays(Trained(folder, {**facts, "transform": None}), folder / "x.npz")


def of(module: str, name: str, **options: Any) -> Callable[[Path], object]:
    """A reader of our package by where it is: imported when a fuzzer watches."""

    def read(folder: Path) -> object:
        from importlib import import_module

        path = options.get("file")
        more = {key: value for key, value in options.items() if key != "file"}
        return getattr(import_module(f"fedrelay.data.{module}"), name)(folder / path if path else folder, **more)

    return read


FOLDER = of("own", "from_folder", size=8)
READERS = (
    Reader("idx", lambda: [published.idx(X), published.idx(Y)], at("f"), of("sources.idx", "read_idx", file="f")),
    Reader(
        "idx, gzip", lambda: [gzip.compress(published.idx(X))], at("f.gz"), of("sources.idx", "read_idx", file="f.gz")
    ),
    Reader(
        "idx inside gzip",
        lambda: [published.idx(X)],
        at("f.gz", gzip.compress),
        of("sources.idx", "read_idx", file="f.gz"),
    ),
    Reader("labels of MNIST", lambda: [published.idx(Y)], lay_mnist, of("sources.idx", "mnist")),
    Reader("CIFAR, pickled", lambda: [pickled()], lay_cifar("", pickled), of("sources.cifar", "cifar10_of", records=2)),
    Reader(
        "CIFAR, binary", lambda: [records()], lay_cifar(".bin", records), of("sources.cifar", "cifar10_of", records=2)
    ),
    Reader("pickles", lambda: [pickled()], at("f"), of("sources.pickles", "load", file="f")),
    Reader("LEAF pictures", lambda: [femnist_json()], lay_leaf(femnist_json), of("sources.femnist", "femnist")),
    Reader("LEAF texts", lambda: [roles_json()], lay_leaf(roles_json), of("sources.shakespeare", "shakespeare")),
    Reader("npz of FEMNIST", lambda: [femnist_npz()], at("femnist.npz"), of("sources.femnist", "femnist")),
    Reader(
        "HDF5 of FEMNIST",
        lambda: [h5_of("femnist")],
        lay_two("fed_emnist_train.h5", "fed_emnist_test.h5", lambda: h5_of("femnist")),
        of("sources.femnist", "femnist"),
    ),
    Reader(
        "HDF5 of StackOverflow",
        lambda: [h5_of("words")],
        lay_two("stackoverflow_train.h5", "stackoverflow_test.h5", lambda: h5_of("words")),
        of("sources.stackoverflow", "stackoverflow"),
    ),
    Reader("HDF5 of USPS", lambda: [h5_of("usps")], at("usps.h5"), of("sources.usps", "usps")),
    Reader(
        "LIBSVM, bzip2",
        lambda: [bz2.compress(SVM)],
        lay_two("usps.bz2", "usps.t.bz2", lambda: bz2.compress(SVM)),
        of("sources.usps", "usps"),
    ),
    Reader(
        "LIBSVM inside bzip2",
        lambda: [SVM],
        lambda folder, data: lay_two("usps.bz2", "usps.t.bz2", lambda: bz2.compress(SVM))(folder, bz2.compress(data)),
        of("sources.usps", "usps"),
    ),
    Reader("MATLAB", mats, lay_two("train_32x32.mat", "test_32x32.mat", lambda: mats()[0]), of("sources.svhn", "svhn")),
    Reader(
        "csv",
        lambda: [TABLE.encode(), TABLE.replace(",", ";").encode("utf-16")],
        at("t.csv"),
        of("own", "from_table", file="t.csv"),
    ),
    Reader(
        "csv, gzip", lambda: [gzip.compress(TABLE.encode())], at("t.csv.gz"), of("own", "from_table", file="t.csv.gz")
    ),
    Reader("Parquet", lambda: [parquet()], at("t.parquet"), of("own", "from_table", file="t.parquet")),
    Reader("PNG", pictures("PNG"), lay_picture(".png"), FOLDER),
    Reader("JPEG", pictures("JPEG"), lay_picture(".jpg"), FOLDER),
    Reader("TIFF, BMP, GIF, WebP", pictures("TIFF", "BMP", "GIF", "WEBP"), lay_picture(".tif"), FOLDER),
    Reader("DICOM", dicoms, lay_two("north/ill/c.dcm", "north/ill/d.dcm", lambda: dicoms()[0]), FOLDER),
    Reader("zip", lambda: archives("zip"), at("archive"), unpacked),
    Reader("tar", lambda: archives("w,w:gz"), at("archive"), unpacked),
    Reader("tar, bzip2 and xz", lambda: archives("w:bz2,w:xz"), at("archive"), unpacked),
    Reader("tar inside gzip", lambda: archives("w"), at("archive", gzip.compress), unpacked),
    Reader("arrays to predict", arrays, at("x.npz"), read_arrays),
    Reader("splits", lambda: [split_file()], at("split.npz"), read_split),
)
