"""Small files in the formats of the publishers, for tests of the readers."""

from __future__ import annotations

import gzip
import json
import pickle
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray
from PIL import Image

RNG = np.random.Generator(np.random.PCG64(3))


def pixels(*shape: int) -> NDArray[np.uint8]:
    return RNG.integers(0, 256, shape, dtype=np.uint8)


def write(path: Path, data: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def idx(values: NDArray[Any]) -> bytes:
    """The idx format, as its author describes it."""
    code = {"uint8": 0x08, "int32": 0x0C}[values.dtype.name]
    header = struct.pack(f">BBBB{values.ndim}I", 0, 0, code, values.ndim, *values.shape)
    return header + values.astype(values.dtype.newbyteorder(">")).tobytes()


def mnist_folder(folder: Path, x: NDArray[Any], y: NDArray[Any], *, zipped: bool = True) -> Path:
    """The same digits to train on and to test on."""
    for part in ("train", "t10k"):
        for name, values in (("images-idx3", x), ("labels-idx1", y)):
            data = idx(values)
            suffix = ".gz" if zipped else ""
            write(folder / f"{part}-{name}-ubyte{suffix}", gzip.compress(data) if zipped else data)
    return folder


def cifar_binary(folder: Path, images: NDArray[np.uint8], labels: NDArray[np.uint8]) -> Path:
    """`images` is (6, n, 32, 32, 3): five batches to train on and one to test on."""
    names = [*(f"data_batch_{i}.bin" for i in range(1, 6)), "test_batch.bin"]
    for name, x, y in zip(names, images, labels, strict=True):
        planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
        write(folder / name, np.concatenate([y[:, None], planes], axis=1).tobytes())
    return folder


def cifar_batch(x: NDArray[np.uint8], y: NDArray[np.uint8], key: str = "labels") -> bytes:
    """A batch of the python version: protocol 2, bytes as keys."""
    planes = x.transpose(0, 3, 1, 2).reshape(len(x), -1)
    content = {
        b"batch_label": b"one of some",
        key.encode(): [int(label) for label in y],
        b"data": planes,
        b"filenames": [f"{i}.png".encode() for i in range(len(x))],
    }
    return pickle.dumps(content, protocol=2)


def leaf(clients: Mapping[str, tuple[list[Any], list[Any]]], /, **more: Any) -> bytes:
    """One file of LEAF."""
    content = {
        "users": list(clients),
        "num_samples": [len(y) for _, y in clients.values()],
        "user_data": {name: {"x": x, "y": y} for name, (x, y) in clients.items()},
    }
    return json.dumps(content | more).encode()


def leaf_folder(folder: Path, train: bytes, test: bytes) -> Path:
    write(folder / "train" / "all_data_niid_0_keep_0_train_9.json", train)
    write(folder / "test" / "all_data_niid_0_keep_0_test_9.json", test)
    return folder


def femnist_client(examples: int) -> tuple[list[Any], list[Any]]:
    x = pixels(examples, 784) / 255
    return x.tolist(), RNG.integers(0, 62, examples).tolist()


def picture(path: Path, colour: tuple[int, int, int], size: tuple[int, int] = (20, 30)) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)
    return path


def stackoverflow_hdf5(folder: Path, train: dict[str, list[str]], test: dict[str, list[str]]) -> None:
    """The files of StackOverflow's public federated version: sentences by author."""
    folder.mkdir(parents=True, exist_ok=True)
    for part, clients in (("train", train), ("test", test)):
        with h5py.File(folder / f"stackoverflow_{part}.h5", "w") as file:
            for name, sentences in clients.items():
                file.create_dataset(f"examples/{name}/tokens", data=sentences, dtype=h5py.string_dtype())
