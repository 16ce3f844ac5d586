from __future__ import annotations

import bz2
import gzip
import pickle
import re
from pathlib import Path

import h5py
import numpy as np
import published
import pytest
import scipy.io
import torch
from published import pixels, write

from fedrelay.data.federation import Federation
from fedrelay.data.locate import VARIABLE, data_folder
from fedrelay.data.partitions.basic import Natural
from fedrelay.data.sources import FILES, cache, load
from fedrelay.data.sources.cifar import cifar10, cifar10_of, cifar100, cifar100_of
from fedrelay.data.sources.domains import domain_folders, office31, pacs
from fedrelay.data.sources.femnist import femnist
from fedrelay.data.sources.idx import emnist, fashion_mnist, mnist, read_idx
from fedrelay.data.sources.matlab import read_mat
from fedrelay.data.sources.shakespeare import shakespeare
from fedrelay.data.sources.stackoverflow import stackoverflow
from fedrelay.data.sources.svhn import svhn
from fedrelay.data.sources.tiny_imagenet import tiny_imagenet, tiny_imagenet_of
from fedrelay.data.sources.tokens import LETTERS, letters, windows
from fedrelay.data.sources.usps import usps
from fedrelay.errors import BadInput


def need(real_data: Path | None) -> Path:
    if real_data is None:
        pytest.skip(
            "the published data sets are not beside this checkout; other tests read files they write themselves"
        )
    return real_data


# --- the published data sets, where they are at hand ---------------------------------------------------------------


def test_published_cifar10_has_5000_and_1000_images_of_each_class(real_data):
    source = cifar10(need(real_data))
    assert np.bincount(source.train.labels).tolist() == [5000] * 10
    assert np.bincount(source.test.labels).tolist() == [1000] * 10
    # The first image of the first batch is a frog whose first pixel is (59, 62, 63).
    assert source.class_names[source.train.labels[0]] == "frog"
    assert source.train.x[0, 0, 0].tolist() == [59, 62, 63]


def test_published_mnist_was_written_by_539_writers(real_data):
    source = mnist(need(real_data))
    assert (len(source.train), len(source.test)) == (60_000, 10_000)
    assert len(Federation.split(source, Natural())) == 539
    assert source.train.labels[:5].tolist() == [5, 0, 4, 1, 9]


def test_published_femnist_is_split_by_writer(real_data):
    source = femnist(need(real_data))
    with np.load(need(real_data) / "femnist" / "femnist.npz") as stored:
        writer, is_test = stored["writer"], stored["is_test"]
    expected = np.bincount(writer[is_test == 0])
    assert Federation.split(source, Natural()).sizes == tuple(expected[expected > 0].tolist())
    assert len(source.owner_names) == 300
    assert source.classes == 62


def test_published_femnist_is_the_same_as_leaf_writes_it(real_data, tmp_path):
    with np.load(need(real_data) / "femnist" / "femnist.npz") as stored:
        columns = {name: stored[name] for name in ("x", "y", "writer", "is_test", "writer_names")}
    parts = []
    for is_test in (0, 1):
        rows = {w: np.flatnonzero((columns["writer"] == w) & (columns["is_test"] == is_test)) for w in range(3)}
        clients = {
            str(columns["writer_names"][w]): (
                (columns["x"][r].reshape(-1, 784) / 255).tolist(),
                columns["y"][r].tolist(),
            )
            for w, r in rows.items()
        }
        parts.append(published.leaf(clients))
    published.leaf_folder(tmp_path, *parts)
    leaf, npz = femnist(tmp_path), femnist(need(real_data))
    assert np.array_equal(leaf.train.x.numpy(), npz.train.x[: len(leaf.train)].numpy())
    assert np.array_equal(leaf.owners, npz.owners[: len(leaf.train)])
    assert leaf.owner_names == npz.owner_names[:3]


def test_published_shakespeare_is_split_by_role(real_data):
    folder = need(real_data)
    source = shakespeare(folder)
    text = (folder / "shakespeare" / "input.txt").read_text()
    spoken = re.findall(r"(?:^|\n\n)\n*([^\n:]+):\n(?!\n)", text)
    assert set(source.owner_names) == set(spoken)
    assert len(Federation.split(source, Natural())) == len(set(spoken))
    assert source.train.labels.max() < 80


def test_published_pacs_has_9991_images_in_4_domains_and_7_classes(real_data):
    source = pacs(need(real_data))
    assert len(source.train) + len(source.test) == 9991
    assert source.owner_names == ("art_painting", "cartoon", "photo", "sketch")
    assert source.classes == 7
    assert source.train.shape == (3, 64, 64)


def test_published_office_caltech10_has_2533_images_in_4_domains(real_data):
    source = load("office-caltech-10", need(real_data))
    assert len(source.train) + len(source.test) == 2533
    assert len(source.owner_names) == 4
    assert source.classes == 10


def test_published_usps_has_7291_and_2007_digits(real_data):
    source = usps(need(real_data))
    assert (len(source.train), len(source.test)) == (7291, 2007)


# --- CIFAR -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def images() -> tuple[np.ndarray, np.ndarray]:
    return pixels(6, 4, 32, 32, 3), published.RNG.integers(0, 10, (6, 4), dtype=np.uint8)


def test_cifar10_is_the_same_in_the_binary_and_the_python_version(tmp_path, images):
    x, y = images
    published.cifar_binary(tmp_path / "a" / "cifar-10-batches-bin", x, y)
    for name, batch, labels in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], x, y, strict=True):
        write(tmp_path / "b" / "cifar-10-batches-py" / name, published.cifar_batch(batch, labels))
    for folder in ("a", "b"):
        source = cifar10_of(tmp_path / folder, records=4)
        assert np.array_equal(source.train.x.numpy(), x[:5].reshape(-1, 32, 32, 3))
        assert np.array_equal(source.train.labels, y[:5].ravel())
        assert np.array_equal(source.test.x.numpy(), x[5])


def test_pixels_reach_the_network_normalised_and_with_channels_first(tmp_path, images):
    published.cifar_binary(tmp_path, *images)
    source = cifar10_of(tmp_path, records=4)
    x, _ = source.train.take(slice(0, 2))
    assert x.shape == (2, 3, 32, 32)
    green = (images[0][0, 1, 5, 7, 1] / 255 - 0.4822) / 0.1994
    assert float(x[1, 1, 5, 7]) == pytest.approx(green, abs=1e-5)


def test_cifar100_takes_the_fine_labels(tmp_path):
    x, fine = pixels(2, 3, 32, 32, 3), np.array([[7, 99, 0], [1, 2, 3]], dtype=np.uint8)
    for name, batch, labels in zip(("train.bin", "test.bin"), x, fine, strict=True):
        planes = batch.transpose(0, 3, 1, 2).reshape(3, -1)
        coarse = np.full((3, 1), 5, dtype=np.uint8)
        write(tmp_path / "cifar-100-binary" / name, np.concatenate([coarse, labels[:, None], planes], 1).tobytes())
    for name, batch, labels in zip(("train", "test"), x, fine, strict=True):
        write(tmp_path / "py" / "cifar-100-python" / name, published.cifar_batch(batch, labels, "fine_labels"))
    names = {b"fine_label_names": [f"kind {i}".encode() for i in range(100)]}
    write(tmp_path / "py" / "cifar-100-python" / "meta", pickle.dumps(names, protocol=2))
    binary, python = cifar100_of(tmp_path, records=(3, 3)), cifar100_of(tmp_path / "py", records=(3, 3))
    assert binary.train.labels.tolist() == python.train.labels.tolist() == [7, 99, 0]
    assert np.array_equal(binary.test.x.numpy(), python.test.x.numpy())
    assert python.class_names[99] == "kind 99"
    with pytest.raises(BadInput, match=r"train.bin: expected 50000 images, found 3"):
        cifar100(tmp_path)


def test_a_truncated_cifar_batch_is_named_with_what_was_expected_and_found(tmp_path, images):
    folder = published.cifar_binary(tmp_path, *images)
    path = folder / "data_batch_3.bin"
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(BadInput, match=r"data_batch_3.bin: expected a whole number of records of 3073 bytes, found"):
        cifar10_of(tmp_path, records=4)
    path.write_bytes(path.read_bytes()[: 3 * 3073])
    with pytest.raises(BadInput, match=r"data_batch_3.bin: expected 4 images, found 3"):
        cifar10_of(tmp_path, records=4)


def test_labels_out_of_range_are_counted(tmp_path, images):
    x, y = images
    y = y.copy()
    y[2, 1:3] = 200
    published.cifar_binary(tmp_path, x, y)
    with pytest.raises(BadInput, match=r"data_batch_3.bin: expected labels from 0 to 9, found 2 of 4 outside"):
        cifar10_of(tmp_path, records=4)


class _Evil:
    def __reduce__(self):
        return (Path.touch, (Path("touched-by-a-pickle"),))


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_a_pickle_that_wants_to_run_something_is_refused_and_nothing_is_run(tmp_path, monkeypatch, images, protocol):
    monkeypatch.chdir(tmp_path)
    for name, batch, labels in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], *images, strict=True):
        write(tmp_path / name, published.cifar_batch(batch, labels))
    write(tmp_path / "data_batch_2", pickle.dumps({b"data": _Evil(), b"labels": []}, protocol=protocol))
    with pytest.raises(BadInput, match="data_batch_2: expected a pickle of plain values and arrays"):
        cifar10_of(tmp_path, records=4)
    assert not (tmp_path / "touched-by-a-pickle").exists()


def test_a_pickled_array_of_objects_is_refused(tmp_path, images):
    for name, batch, labels in zip([*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], *images, strict=True):
        write(tmp_path / name, published.cifar_batch(batch, labels))
    objects = {b"data": np.array([{}, {}], dtype=object), b"labels": [1, 2]}
    write(tmp_path / "data_batch_1", pickle.dumps(objects, protocol=2))
    with pytest.raises(BadInput, match="data_batch_1: expected an array of bytes or whole numbers"):
        cifar10_of(tmp_path, records=4)


# --- idx -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("zipped", [True, False])
def test_mnist_is_read_gzipped_or_not(tmp_path, zipped):
    x, y = pixels(7, 28, 28), np.arange(7, dtype=np.uint8)
    published.mnist_folder(tmp_path / "MNIST" / "raw", x, y, zipped=zipped)
    source = mnist(tmp_path)
    assert np.array_equal(source.train.x[..., 0].numpy(), x)
    assert source.train.labels.tolist() == list(range(7))
    assert source.owners is None


def test_writers_of_qmnist_become_owners(tmp_path):
    y = np.array([5, 0, 4], dtype=np.uint8)
    published.mnist_folder(tmp_path, pixels(3, 28, 28), y)
    table = np.zeros((3, 8), dtype=np.int32)
    table[:, 0], table[:, 2] = y, [2154, 7, 2154]
    path = write(tmp_path / "qmnist-train-labels-idx2-int.gz", gzip.compress(published.idx(table)))
    source = mnist(tmp_path)
    assert source.owners.tolist() == [1, 0, 1]
    assert source.owner_names == ("writer 7", "writer 2154")
    table[0, 0] = 6
    path.write_bytes(gzip.compress(published.idx(table)))
    with pytest.raises(BadInput, match="found 1 of 3 labels that differ"):
        mnist(tmp_path)


def test_fashion_mnist_and_mnist_do_not_take_each_others_folder(tmp_path):
    published.mnist_folder(tmp_path / "MNIST" / "raw", pixels(2, 28, 28), np.arange(2, dtype=np.uint8))
    with pytest.raises(BadInput, match="fashion-mnist was not found"):
        fashion_mnist(tmp_path)
    published.mnist_folder(tmp_path / "FashionMNIST" / "raw", pixels(3, 28, 28), np.arange(3, dtype=np.uint8))
    assert len(fashion_mnist(tmp_path).train) == 3
    assert len(mnist(tmp_path).train) == 2


def test_emnist_is_turned_upright_and_letters_start_at_zero(tmp_path):
    x, y = pixels(2, 28, 28), np.array([1, 26], dtype=np.uint8)
    for part in ("train", "test"):
        write(tmp_path / f"emnist-letters-{part}-images-idx3-ubyte.gz", gzip.compress(published.idx(x)))
        write(tmp_path / f"emnist-letters-{part}-labels-idx1-ubyte.gz", gzip.compress(published.idx(y)))
    source = emnist(tmp_path, version="letters")
    assert source.train.labels.tolist() == [0, 25]
    assert source.train.x[1, 3, 20, 0] == x[1, 20, 3]
    with pytest.raises(BadInput, match="emnist has no version 'capitals': use one of byclass"):
        emnist(tmp_path, version="capitals")


def test_an_idx_file_that_claims_more_than_it_holds_is_refused_without_reading_it(tmp_path):
    header = bytes([0, 0, 8, 3]) + (2**31).to_bytes(4, "big") * 3
    with pytest.raises(BadInput, match="found a file of only"):
        read_idx(write(tmp_path / "a", header + b"abc"))
    with pytest.raises(BadInput, match="found a file of only"):
        read_idx(write(tmp_path / "a.gz", gzip.compress(header + b"abc")))


def test_images_and_labels_of_different_length_are_refused(tmp_path):
    published.mnist_folder(tmp_path, pixels(3, 28, 28), np.arange(3, dtype=np.uint8), zipped=False)
    write(tmp_path / "t10k-labels-idx1-ubyte", published.idx(np.arange(2, dtype=np.uint8)))
    with pytest.raises(BadInput, match=r"t10k-labels-idx1-ubyte: expected one label for each of the 3 images.*found 2"):
        mnist(tmp_path)


# --- LEAF ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def femnist_folder(tmp_path) -> Path:
    train = {"f0001_01": published.femnist_client(3), "f0002_07": published.femnist_client(2)}
    test = {"f0001_01": published.femnist_client(1), "f0002_07": published.femnist_client(1)}
    return published.leaf_folder(tmp_path / "femnist" / "data", published.leaf(train), published.leaf(test))


def test_femnist_of_leaf_is_read_by_writer_and_kept_compactly(tmp_path):
    clients = {"f0001_01": published.femnist_client(3), "f0002_07": published.femnist_client(2)}
    folder = published.leaf_folder(tmp_path / "femnist", published.leaf(clients), published.leaf(clients))
    first = femnist(tmp_path)
    assert first.owner_names == ("f0001_01", "f0002_07")
    assert first.owners.tolist() == [0, 0, 0, 1, 1]
    assert first.train.labels.tolist() == clients["f0001_01"][1] + clients["f0002_07"][1]
    expected = np.rint(np.array(clients["f0002_07"][0]) * 255).reshape(2, 28, 28)
    assert np.array_equal(first.train.x[3:, ..., 0].numpy(), expected)
    (cache,) = (folder / ".fedrelay").iterdir()
    again = femnist(tmp_path)
    assert np.array_equal(first.train.x.numpy(), again.train.x.numpy())
    assert again.owner_names == first.owner_names
    assert cache.exists()


def test_a_damaged_cache_is_made_again(femnist_folder):
    good = femnist(femnist_folder).train.x.numpy()
    (cache,) = (femnist_folder / ".fedrelay").iterdir()
    whole = cache.read_bytes()
    for damaged in (whole[: len(whole) // 2], b"", whole[:100] + bytes(50) + whole[150:]):
        cache.write_bytes(damaged)
        assert np.array_equal(femnist(femnist_folder).train.x.numpy(), good)
        assert cache.read_bytes() == whole


def test_a_cache_is_not_used_once_the_files_have_changed(femnist_folder):
    assert len(femnist(femnist_folder).train) == 5
    published.leaf_folder(
        femnist_folder,
        published.leaf({"new": published.femnist_client(9)}),
        published.leaf({"new": published.femnist_client(1)}),
    )
    assert len(femnist(femnist_folder).train) == 9
    assert len(list((femnist_folder / ".fedrelay").iterdir())) == 1


def test_reading_that_fails_leaves_no_cache(femnist_folder):
    path = next((femnist_folder / "test").iterdir())
    path.write_bytes(path.read_bytes()[:-30])
    with pytest.raises(BadInput, match=r"_test_9.json: expected a whole JSON file, found a damaged one"):
        femnist(femnist_folder)
    assert not (femnist_folder / ".fedrelay").exists()


def test_a_cache_that_cannot_be_written_whole_is_not_written_at_all(femnist_folder, monkeypatch, tmp_path):
    def full(stream, **arrays):
        stream.write(b"PK half of it")
        raise OSError("no space left on device")

    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(cache.np, "savez", full)
    assert len(femnist(femnist_folder).train) == 5
    assert list((femnist_folder / ".fedrelay").iterdir()) == []
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []


def test_beside_data_that_must_not_be_written_to_the_platforms_cache_is_used(femnist_folder, monkeypatch, tmp_path):
    write(femnist_folder / ".fedrelay", b"a file where the folder of the cache would be")
    monkeypatch.setattr(cache, "cache_folder", lambda: tmp_path / "cache")
    first = femnist(femnist_folder).train.x.numpy()
    (kept,) = (path for path in (tmp_path / "cache").rglob("*.npz"))
    monkeypatch.setattr(cache, "_store", None)  # from here on it must be read
    assert np.array_equal(femnist(femnist_folder).train.x.numpy(), first)
    assert kept.exists()


def test_clients_that_leaf_has_dropped_are_left_out(tmp_path):
    kept = published.femnist_client(2)
    data = {"kept": {"x": kept[0], "y": kept[1]}, "dropped": {"x": [], "y": []}}
    content = published.leaf({"kept": kept}, user_data=data)
    published.leaf_folder(tmp_path, content, content)
    assert femnist(tmp_path).owner_names == ("kept",)


def test_what_is_wrong_with_a_leaf_file_is_named_with_its_count(tmp_path):
    x, y = published.femnist_client(3)
    nan = [[float("nan")] * 784, x[1], x[2]]
    cases = {
        r"labels from 0 to 61, found 1 of 3 outside": {"a": (x, [0, 62, 1])},
        r"expected numbers, found 784 of 2352 values that are NaN": {"a": (nan, y)},
        r"values from 0 to 1, found 784 of 2352 outside": {"a": ([[2.0] * 784, *x[1:]], y)},
        r"784 values per image of client 'a', found inputs of shape \(3,\)": {"a": ([[1, 2, 3]] * 3, y)},
        r"rows of numbers of one length": {"a": ([x[0], x[1], x[2][:5]], y)},
        r"examples for every client, found 2 of 3 clients with none: b, c": {"a": (x, y), "b": ([], []), "c": ([], [])},
    }
    for message, clients in cases.items():
        published.leaf_folder(tmp_path, published.leaf(clients), published.leaf({"a": (x, y)}))
        with pytest.raises(BadInput, match=message):
            femnist(tmp_path)
    others = {
        r"expected 7 examples of client 'a', found 3 inputs and 3 targets": {"num_samples": [7]},
        r"expected a key 'users', found only": {"users": None},
        r"lists x and y for client 'b', found none": {"users": ["b"]},
    }
    for message, more in others.items():
        content = published.leaf({"a": (x, y)}, **more)
        if more.get("users", ()) is None:
            content = content.replace(b'"users"', b'"people"')
        published.leaf_folder(tmp_path, content, content)
        with pytest.raises(BadInput, match=message):
            femnist(tmp_path)


def test_femnist_npz_leaves_writers_with_nothing_to_train_on_out(tmp_path):
    x = pixels(4, 28, 28)
    columns = {
        "x": x,
        "y": np.array([1, 2, 3, 61]),
        "writer": np.array([2, 0, 2, 1]),
        "is_test": np.array([0, 0, 1, 1]),
    }
    names = np.array(["a", "b", "c"])
    np.savez(tmp_path / "femnist.npz", **columns, writer_names=names)
    source = femnist(tmp_path)
    assert source.owner_names == ("a", "c")
    assert source.owners.tolist() == [1, 0]
    assert source.test.labels.tolist() == [3, 61]
    np.savez(tmp_path / "femnist.npz", **columns)
    with pytest.raises(BadInput, match="found no writer_names"):
        femnist(tmp_path)


def test_femnist_hdf5_of_the_federated_version_is_read_by_writer(tmp_path):
    x = pixels(3, 28, 28)
    for part in ("train", "test"):
        with h5py.File(tmp_path / f"fed_emnist_{part}.h5", "w") as file:
            for name, rows in (("f0_00", slice(0, 1)), ("f1_00", slice(1, 3))):
                group = file.create_group(f"examples/{name}")
                group["pixels"] = (x[rows] / 255).astype(np.float32)
                group["label"] = np.arange(3, dtype=np.int32)[rows]
    for _ in range(2):
        source = femnist(tmp_path)
        assert np.array_equal(source.train.x[..., 0].numpy(), x)
        assert source.owners.tolist() == [0, 1, 1]
        assert source.train.labels.tolist() == [0, 1, 2]


# --- text ------------------------------------------------------------------------------------------------------------


def test_letters_are_those_of_leaf_and_others_count_as_a_space():
    assert len(LETTERS) == 80
    assert letters("\n }").tolist() == [0, 1, 79]
    assert letters("a$é—😀").tolist() == [LETTERS.index("a"), 1, 1, 1, 1]


def test_every_character_is_predicted_from_those_before_it():
    x, y = windows(letters("abc"), 4)
    assert ["".join(LETTERS[i] for i in row) for row in x] == ["    ", "   a", "  ab"]
    assert "".join(LETTERS[i] for i in y) == "abc"
    every_second, targets = windows(letters("abcde"), 4, stride=2)
    assert len(every_second) == 3
    assert "".join(LETTERS[i] for i in targets) == "ace"


PLAY = """First Citizen:
Before we proceed any further,
hear me speak.

All:
Speak, speak.

First Citizen:
You are all resolved?

TITUS:

All:
Resolved.

All:
Away!
"""


def test_a_play_is_cut_by_speaking_role(tmp_path):
    write(tmp_path / "shakespeare" / "input.txt", PLAY.encode())
    source = shakespeare(tmp_path)
    assert source.owner_names == ("First Citizen", "All")  # Titus says nothing
    said = dict.fromkeys(source.owner_names, "")
    for owner, label in zip(source.owners, source.train.labels, strict=True):
        said[source.owner_names[owner]] += LETTERS[label]
    assert said == {
        "First Citizen": "Before we proceed any further, hear me speak.\n",
        "All": "Speak, speak.\nResolved.\n",
    }
    assert "".join(LETTERS[i] for i in source.test.labels) == "You are all resolved?\nAway!\n"
    x, y = source.train.take(slice(0, 3))
    assert x.shape == (3, 80)
    assert str(x.dtype) == str(y.dtype) == "torch.int64"


def test_shakespeare_of_leaf_is_80_characters_and_the_next(tmp_path):
    clients = {"PLAY_ROLE": (["a" * 79 + "b", "b" * 80], ["c", "\n"])}
    published.leaf_folder(tmp_path / "shakespeare", published.leaf(clients), published.leaf(clients))
    source = shakespeare(tmp_path)
    assert source.train.labels.tolist() == [LETTERS.index("c"), 0]
    assert source.train.x[0, -2:].tolist() == [LETTERS.index("a"), LETTERS.index("b")]
    bad = published.leaf({"R": (["short"], ["c"])})
    published.leaf_folder(tmp_path / "shakespeare", bad, bad)
    with pytest.raises(BadInput, match="texts of 80 characters, found 1 of 1 that are something else"):
        shakespeare(tmp_path)


def test_a_text_without_roles_is_refused(tmp_path):
    write(tmp_path / "input.txt", b"It was the best of times.\n\nIt was the worst of times.\n")
    with pytest.raises(BadInput, match=r"input.txt: expected at least two roles .* found 0 in 2 blocks"):
        shakespeare(tmp_path)


def test_stackoverflow_predicts_the_next_word_at_every_place(tmp_path):
    published.stackoverflow_hdf5(
        tmp_path, {"7": ["how to sort", "sort how"], "8": ["to to to to to"]}, {"7": ["how odd"]}
    )
    write(tmp_path / "stackoverflow.word_count", b"how 9\nto 5\nsort 4\nrare 1\n")
    for _ in range(2):
        source = stackoverflow(tmp_path, words=3, length=4)
        how, to, sort, unknown, begin, end = range(1, 7)
        assert source.classes == 7
        x, y = source.train.take(slice(0, 3))
        assert x.tolist() == [[begin, how, to, sort], [begin, sort, how, end], [begin, to, to, to]]
        assert y.tolist() == [[how, to, sort, end], [sort, how, end, -100], [to, to, to, to]]
        assert source.owners.tolist() == [0, 0, 1]
        assert source.test.take(slice(0, 1))[1].tolist() == [[how, unknown, end, -100]]
    assert len(stackoverflow(tmp_path, words=3, length=4, clients=1, sentences=1).train) == 1
    assert source.train.take(torch.tensor([2, 0]))[0].tolist() == [[begin, to, to, to], [begin, how, to, sort]]


def test_stackoverflow_without_published_counts_counts_the_words_itself(tmp_path):
    published.stackoverflow_hdf5(tmp_path, {"7": ["b a b", "c b a"]}, {"7": ["a"]})
    source = stackoverflow(tmp_path, words=2, length=3)
    b, a, unknown = 1, 2, 3
    assert source.train.y.tolist() == [[b, a, b], [unknown, b, a]]


def test_stackoverflow_in_json_may_be_words_or_numbers(tmp_path):
    words = published.leaf({"7": (["how to", ["to", "how"]], [0, 0])})
    published.leaf_folder(tmp_path / "a", words, words)
    source = stackoverflow(tmp_path / "a", words=2, length=2)
    assert source.train.y.tolist() == [[1, 2], [2, 1]]
    numbers = published.leaf({"7": ([[1, 2, 3], [3, 2, 1]], [[4], [5]])})
    published.leaf_folder(tmp_path / "b", numbers, numbers)
    source = stackoverflow(tmp_path / "b", words=2)
    assert source.train.labels.tolist() == [4, 5]
    assert source.classes == 6
    with pytest.raises(BadInput, match="labels from 0 to 4, found 1 of 2 outside"):
        stackoverflow(tmp_path / "b", words=1)


# --- other formats ---------------------------------------------------------------------------------------------------


def svhn_folder(folder: Path, x: np.ndarray, y: np.ndarray) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in ("train", "test"):
        scipy.io.savemat(folder / f"{part}_32x32.mat", {"X": x, "y": y[:, None]}, do_compression=True)


@pytest.mark.parametrize("compressed", [True, False])
def test_matlab_files_are_read_as_scipy_reads_them(tmp_path, compressed):
    rng = np.random.Generator(np.random.PCG64(1))
    kinds = ("uint8", "int16", "int32", "float32", "float64")
    variables = {f"name_{kind}": (200 * rng.random((2, 3, 4))).astype(kind) for kind in kinds}
    others = {"text": "abc", "cells": np.array([1, "two"], dtype=object), "odd": np.arange(3, dtype=np.uint8)}
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, variables | others, do_compression=compressed)
    found = read_mat(path, variables.keys() | {"text", "odd"})
    assert found.keys() == variables.keys() | {"odd"}
    expected = scipy.io.loadmat(path)
    for name, array in found.items():
        assert np.array_equal(array, expected[name])


def test_a_matlab_variable_that_ends_after_any_of_its_parts_is_refused(tmp_path):
    path = tmp_path / "a.mat"
    scipy.io.savemat(path, {"X": np.arange(4, dtype=np.uint8)})
    whole = path.read_bytes()
    for size in range(0, 48, 8):  # flags 16 bytes, shape 16, name 8, values 16
        path.write_bytes(whole[:132] + size.to_bytes(4, "little") + whole[136 : 136 + size])
        with pytest.raises(BadInput, match=r"a\.mat: expected a whole MATLAB file, found a damaged one"):
            read_mat(path, ("X",))


def test_svhn_calls_a_zero_ten(tmp_path):
    x = pixels(32, 32, 3, 4)
    svhn_folder(tmp_path / "SVHN", x, np.array([10, 1, 9, 10], dtype=np.uint8))
    source = svhn(tmp_path)
    assert source.train.labels.tolist() == [0, 1, 9, 0]
    assert np.array_equal(source.train.x[2].numpy(), x[..., 2])


def test_a_damaged_or_wrong_svhn_file_is_named(tmp_path):
    svhn_folder(tmp_path, pixels(32, 32, 3, 4), np.arange(1, 5, dtype=np.uint8))
    path = tmp_path / "train_32x32.mat"
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(BadInput, match=r"train_32x32.mat: expected"):
        svhn(tmp_path)
    scipy.io.savemat(path, {"Z": np.zeros(3)})
    with pytest.raises(BadInput, match=r"expected variables X and y, found no X and no y"):
        svhn(tmp_path)


def test_files_of_usps_without_a_digit_are_refused(tmp_path):
    for name in ("usps.bz2", "usps.t.bz2"):
        write(tmp_path / "usps" / name, bz2.compress(b""))
    with pytest.raises(BadInput, match=r"usps.bz2: expected"):
        usps(tmp_path)


def test_usps_is_the_same_in_hdf5_and_in_the_format_of_libsvm(tmp_path):
    grey, labels = pixels(3, 256) / 255, np.array([0, 9, 4], dtype=np.int32)
    lines = [
        f"{label + 1} " + " ".join(f"{i}:{2 * v - 1:.6f}" for i, v in enumerate(row, start=1))
        for label, row in zip(labels, grey, strict=True)
    ]
    text = ("\n".join(lines) + "\n").encode()
    for name in ("usps.bz2", "usps.t.bz2"):
        write(tmp_path / "a" / "usps" / name, bz2.compress(text))
    (tmp_path / "b").mkdir()
    with h5py.File(tmp_path / "b" / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}/data"], file[f"{part}/target"] = grey.astype(np.float32), labels
    for folder in ("a", "b"):
        source = usps(tmp_path / folder)
        assert source.train.labels.tolist() == [0, 9, 4]
        assert np.array_equal(source.train.x.numpy().reshape(3, 256), np.rint(grey * 255))


def test_nan_pixels_are_counted(tmp_path):
    grey = np.zeros((2, 256), dtype=np.float32)
    grey[1, :5] = np.nan
    with h5py.File(tmp_path / "usps.h5", "w") as file:
        for part in ("train", "test"):
            file[f"{part}/data"], file[f"{part}/target"] = grey, np.arange(2)
    with pytest.raises(BadInput, match=r"usps.h5, train: expected numbers, found 5 of 512 values that are NaN"):
        usps(tmp_path)


def test_a_damaged_hdf5_file_is_named(tmp_path):
    write(tmp_path / "usps.h5", b"\x89HDF\r\n\x1a\n" + bytes(100))
    with pytest.raises(BadInput, match=r"usps.h5: expected a whole HDF5 file, found a damaged one"):
        usps(tmp_path)


def test_tiny_imagenet_trains_on_its_folders_and_tests_on_its_validation_part(tmp_path):
    base = tmp_path / "tiny-imagenet-200"
    published.picture(base / "train" / "n01" / "images" / "n01_0.JPEG", (255, 0, 0), (64, 64))
    published.picture(base / "train" / "n02" / "images" / "n02_0.JPEG", (0, 0, 255), (64, 64))
    published.picture(base / "val" / "images" / "val_0.JPEG", (0, 0, 250), (64, 64))
    write(base / "val" / "val_annotations.txt", b"val_0.JPEG\tn02\t0\t0\t62\t62\n")
    write(base / "words.txt", b"n01\tgoldfish\nn02\tsea\n")
    source = tiny_imagenet_of(tmp_path, classes=2)
    assert source.class_names == ("goldfish", "sea")
    assert source.test.labels.tolist() == [1]
    assert source.train.x[0, 9, 9, 0] > 250
    assert source.train.x[0, 9, 9, 2] < 5
    with pytest.raises(BadInput, match="expected 200 folders of classes, found 2"):
        tiny_imagenet(tmp_path)
    (base / "val" / "images" / "val_0.JPEG").unlink()
    with pytest.raises(BadInput, match="found 1 missing"):
        tiny_imagenet_of(tmp_path, classes=2)


# --- domain folders --------------------------------------------------------------------------------------------------


def test_domain_folders_are_read_by_domain_and_class(tmp_path):
    for domain, red in (("photo", 10), ("sketch", 200)):
        for kind, green in (("dog", 20), ("house", 220)):
            for number in range(5):
                published.picture(tmp_path / domain / kind / f"{number}.png", (red, green, 0))
    write(tmp_path / "photo" / "dog" / "Thumbs.db", b"no image")
    source = domain_folders(tmp_path, size=16, test=0.2)
    assert (len(source.train), len(source.test)) == (16, 4)
    assert source.owner_names == ("photo", "sketch")
    assert source.class_names == ("dog", "house")
    assert source.train.shape == (3, 16, 16)
    reds, greens = source.train.x[:, 8, 8, 0].numpy(), source.train.x[:, 8, 8, 1].numpy()
    assert np.array_equal(reds, np.where(source.owners == 1, 200, 10))
    assert np.array_equal(greens, np.where(source.train.labels == 1, 220, 20))
    assert sorted(source.test.labels.tolist()) == [0, 0, 1, 1]


def test_domain_folders_are_read_again_when_an_image_was_added(tmp_path):
    for number in range(4):
        published.picture(tmp_path / "a" / "x" / f"{number}.png", (1, 2, 3))
    assert len(domain_folders(tmp_path, size=8).train) == 3
    published.picture(tmp_path / "a" / "x" / "new.png", (1, 2, 3))
    assert len(domain_folders(tmp_path, size=8).train) == 4
    assert domain_folders(tmp_path, size=4).train.shape == (3, 4, 4)


def test_a_domain_without_images_is_named(tmp_path):
    published.picture(tmp_path / "a" / "x" / "0.png", (1, 2, 3))
    (tmp_path / "b" / "x").mkdir(parents=True)
    with pytest.raises(BadInput, match="found 1 of 2 clients with none: b"):
        domain_folders(tmp_path)


def test_a_damaged_image_is_named(tmp_path):
    for number in range(3):
        published.picture(tmp_path / "a" / "x" / f"{number}.png", (1, 2, 3))
    path = tmp_path / "a" / "x" / "1.png"
    path.write_bytes(path.read_bytes()[:30])
    with pytest.raises(BadInput, match=r"1.png: expected an image, found a damaged"):
        domain_folders(tmp_path)


def test_office31_keeps_its_classes_in_a_folder_images_and_has_31_of_them(tmp_path):
    for domain in ("amazon", "dslr", "webcam"):
        for kind in range(31):
            for number in range(2):
                published.picture(
                    tmp_path / "office31" / domain / "images" / f"kind{kind:02}" / f"{number}.jpg", (9, 9, 9)
                )
    source = office31(tmp_path, size=4)
    assert (len(source.train), len(source.test), source.classes) == (93, 93, 31)
    with pytest.raises(BadInput, match="office-caltech-10 was not found"):
        load("office-caltech-10", tmp_path)


def test_pacs_with_another_number_of_classes_is_refused(tmp_path):
    for domain in ("art_painting", "cartoon", "photo", "sketch"):
        published.picture(tmp_path / "PACS" / domain / "dog" / "0.png", (1, 2, 3))
    with pytest.raises(BadInput, match="expected 7 classes in the domains of pacs, found 1: dog"):
        pacs(tmp_path)


# --- where data lies, and the table ----------------------------------------------------------------------------------


def test_the_given_folder_comes_before_the_variable_and_the_platforms_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, str(tmp_path / "variable"))
    assert data_folder(tmp_path / "given") == tmp_path / "given"
    assert data_folder() == tmp_path / "variable"
    monkeypatch.delenv(VARIABLE)
    assert data_folder().parts[-2:] == ("fedrelay", "data")


def test_what_is_missing_is_named_with_how_to_get_it(tmp_path, images):
    with pytest.raises(BadInput, match=r"cifar10 was not found in .*none of its files") as missing:
        load("cifar10", tmp_path)
    assert "fedrelay data get cifar10" in str(missing.value)
    assert "cifar-10-batches-py/ with data_batch_1," in str(missing.value)
    published.cifar_binary(tmp_path / "cifar-10-batches-bin", *images)
    (tmp_path / "cifar-10-batches-bin" / "data_batch_4.bin").unlink()
    with pytest.raises(BadInput, match=r"1 of the 6 files of .* are missing: data_batch_4.bin"):
        load("cifar10", tmp_path)


def test_an_unknown_name_is_refused_with_the_nearest():
    with pytest.raises(BadInput, match=r"there is no data set 'cifar-10'; did you mean 'cifar10'\?"):
        load("cifar-10")


@pytest.mark.parametrize("entry", FILES.values(), ids=list(FILES))
def test_every_data_set_says_where_it_comes_from_and_has_a_checksum_where_it_is_fetched(entry):
    assert entry.page.startswith("http")
    assert entry.licence
    assert entry.citation
    for remote in entry.remotes:
        kind, _, value = remote.checksum.partition(":")
        assert len(value) == {"md5": 32, "sha256": 64}[kind]
        assert not Path(remote.to).is_absolute()
