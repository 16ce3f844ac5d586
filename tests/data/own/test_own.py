from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import published
import pyarrow
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from needs import needed
from PIL import Image
from pyarrow import csv, parquet

from fedrelay.data.own import from_arrays, from_dataset, from_folder, from_partitioner, from_table
from fedrelay.errors import BadInput


def pair(examples: int, seed: int = 0, classes: int = 3) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.Generator(np.random.PCG64(seed))
    return rng.normal(size=(examples, 4)), rng.integers(0, classes, examples)


# --- arrays ----------------------------------------------------------------------------------------------------------


def test_a_dict_of_arrays_is_a_federation_of_named_clients():
    clients = {"hospital A": pair(5, 1), "hospital B": pair(3, 2)}
    federation = from_arrays(clients, test=pair(4, 3), classes=3)
    assert federation.sizes == (5, 3)
    assert federation.source.owner_names == ("hospital A", "hospital B")
    x, y = federation.client(1).take(torch.arange(3), None)
    assert np.allclose(x.numpy(), clients["hospital B"][0], atol=1e-6)
    assert y.tolist() == clients["hospital B"][1].tolist()
    assert len(federation.test) == 4


def test_a_list_of_tensors_is_a_federation_too():
    clients = [
        (torch.ones(2, 4, requires_grad=True), torch.tensor([0, 1])),
        (torch.zeros(3, 4), torch.tensor([1, 1, 0])),
    ]
    federation = from_arrays(clients, test=(torch.ones(1, 4), torch.tensor([1])))
    assert federation.sizes == (2, 3)
    assert federation.source.classes == 2
    assert federation.source.train.x.dtype == torch.float32


@given(sizes=st.lists(st.integers(2, 30), min_size=1, max_size=8), share=st.floats(0.01, 0.9))
def test_a_share_of_every_client_is_held_out_and_nothing_is_lost_or_used_twice(sizes, share):
    marks = np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])
    clients = [(np.stack([mine, mine], axis=1).astype(float), np.zeros(len(mine), dtype=int)) for mine in marks]
    federation = from_arrays(clients, test=share, classes=1)
    trained = [federation.client(i).take(torch.arange(n), None)[0][:, 0] for i, n in enumerate(federation.sizes)]
    tested = federation.test.x[:, 0].tolist()
    assert sorted([*torch.cat(trained).tolist(), *tested]) == list(range(sum(sizes)))
    for mine, kept in zip(marks, trained, strict=True):
        assert set(kept.tolist()) <= set(mine.tolist())
        assert 1 <= len(kept) < len(mine)
    again = from_arrays(clients, test=share, classes=1)
    assert again.test.x[:, 0].tolist() == tested


def test_images_are_kept_as_bytes_and_scaled_when_taken():
    x = published.pixels(4, 8, 6, 3)
    federation = from_arrays([(x, [0, 1, 0, 1])], test=(x, [0, 1, 0, 1]))
    assert federation.source.train.x.dtype == torch.uint8
    taken, _ = federation.test.take(slice(0, 1))
    assert taken.shape == (1, 3, 8, 6)
    assert float(taken[0, 2, 5, 4]) == pytest.approx(x[0, 5, 4, 2] / 127.5 - 1, abs=1e-5)


def test_images_with_channels_first_must_be_said_to_be_so():
    x = published.pixels(4, 3, 8, 8)
    with pytest.raises(BadInput, match='if the channels come first, say channels="first"'):
        from_arrays([(x, [0, 1, 0, 1])])
    federation = from_arrays([(x, [0, 1, 0, 1])], test=(x, [0, 1, 0, 1]), channels="first")
    assert federation.source.train.shape == (3, 8, 8)
    assert federation.source.train.x[1, 2, 3, 0] == x[1, 0, 2, 3]
    with pytest.raises(BadInput, match='channels must be "first" or "last", not \'middle\''):
        from_arrays([(x, [0, 1, 0, 1])], channels="middle")


def test_grey_images_may_come_without_a_channel():
    federation = from_arrays([(published.pixels(4, 8, 8), [0, 1, 0, 1])])
    assert federation.source.train.shape == (1, 8, 8)


def test_next_token_tasks_have_a_target_at_every_place():
    x, y = [[1, 2, 3], [4, 5, 6]], [[2, 3, -100], [5, 6, 7]]
    federation = from_arrays({"a": (x, y), "b": (x, y)}, test=(x, y), tokens=True)
    assert federation.source.classes == 8
    assert federation.source.train.x.dtype == torch.int64
    assert federation.source.train.y.tolist() == y + y


def test_what_is_wrong_is_named_with_its_count():
    x, y = pair(4)
    nan = x.copy()
    nan[1:3, 0] = np.nan
    cases = {
        r"client 0: expected numbers, found 2 of 16 values that are NaN": {"clients": [(nan, y)]},
        r"found 2 of 3 clients with none: client 1, client 2": {"clients": [(x, y), (x[:0], y[:0]), (x[:0], y[:0])]},
        r"client 0: expected one target per input, found 4 inputs and 3 targets": {"clients": [(x, y[:3])]},
        r"expected labels from 0 to 1, found 3 outside, in 2 places, the first client 0": {
            "clients": [(x, [0, 5, 6, 1]), (x, [0, 0, 0, -1])],
            "classes": 2,
        },
        r"1 others, the first client 1 with \(7,\) of float32": {"clients": [(x, y), (np.ones((2, 7)), [0, 1])]},
        r"expected classes to be whole numbers, found float64": {"clients": [(x, y + 0.5)], "target": "classes"},
        r"target must be one of classes, .*, not 'class'": {"clients": [(x, y)], "target": "class"},
        r"expected inputs to be numbers of shape": {"clients": [([["a", "b"]] * 4, y)]},
        r"expected at least one client, found none": {"clients": []},
        r"expected a pair of inputs and targets, found a ndarray": {"clients": [x]},
        r"some client with two examples, to test on one, found none": {"clients": [(x[:1], y[:1])]},
        r"test must be above 0 and at most 0.9, not 1": {"clients": [(x, y)], "test": 1},
        r"expected 3 names of classes, found 2": {"clients": [(x, y)], "classes": 3, "class_names": ["a", "b"]},
        r"expected inputs and targets of one shape": {"clients": [([[1.0], [1.0, 2.0]], [0, 1])]},
    }
    for message, arguments in cases.items():
        with pytest.raises(BadInput, match=message):
            from_arrays(**arguments)


# --- tables ----------------------------------------------------------------------------------------------------------

TABLE = {
    "client": ["b", "a", "b", "a", "b"],
    "height": [1.0, 2.0, 3.0, 4.0, 5.0],
    "age": [10, 20, 30, 40, 50],
    "label": ["yes", "no", "no", "yes", "yes"],
}


def table_file(path: Path, **columns: list) -> Path:
    table = pyarrow.table(TABLE | columns)
    if path.suffix == ".parquet":
        parquet.write_table(table, path)
    else:
        csv.write_csv(table, path)
    return path


@pytest.mark.parametrize("name", ["patients.csv", "patients.parquet"])
def test_a_table_with_a_client_column_is_a_federation(tmp_path, name):
    path = table_file(tmp_path / name)
    federation = from_table(path, test=path, standardise=False)
    assert federation.source.owner_names == ("a", "b")
    assert federation.source.class_names == ("no", "yes")
    assert federation.sizes == (2, 3)
    x, y = federation.client(0).take(torch.arange(2), None)
    assert x.tolist() == [[2, 20], [4, 40]]
    assert y.tolist() == [0, 1]


def test_columns_of_a_table_can_be_chosen(tmp_path):
    path = table_file(tmp_path / "a.csv", note=list("vwxyz"), label=[0, 1, 1, 0, 2])
    assert from_table(path).source.train.shape == (2 + 5,)  # numbers, and one input for every note
    federation = from_table(path, features=["age"], client="client")
    assert federation.source.train.shape == (1,)
    assert federation.source.classes == 3


def test_what_is_wrong_with_a_table_is_named_with_its_count(tmp_path):
    with pytest.raises(
        BadInput, match=r"expected columns 'site', found 1 missing; there is: client, height, age, label"
    ):
        from_table(table_file(tmp_path / "a.csv"), client="site")
    with pytest.raises(BadInput, match=r"a client in every row of column 'client', found 1 empty"):
        from_table(table_file(tmp_path / "b.parquet", client=["a", "b", "a", None, "b"]))
    with pytest.raises(BadInput, match=r"labels from 0 to 1, found 1 outside"):
        from_table(table_file(tmp_path / "c.parquet", label=[0, 1, 0, 5, 1]), classes=2)
    with pytest.raises(BadInput, match=r"a: expected finite values in column 'height', found 1 of 1 that are infinite"):
        from_table(table_file(tmp_path / "d.parquet", height=[float("inf")] * 5))
    with pytest.raises(BadInput, match=r"labels to be whole numbers or texts, found numbers with a fraction"):
        from_table(table_file(tmp_path / "e.parquet", label=[0.5] * 5))
    (tmp_path / "f.parquet").write_bytes((tmp_path / "d.parquet").read_bytes()[:40])
    with pytest.raises(BadInput, match=r"f.parquet: expected a whole table, found a damaged one"):
        from_table(tmp_path / "f.parquet")
    with pytest.raises(BadInput, match=r"g.csv: expected a file, found nothing there"):
        from_table(tmp_path / "g.csv")
    with pytest.raises(BadInput, match=r"found h.xlsx"):
        from_table(published.write(tmp_path / "h.xlsx", b"x"))
    other = table_file(tmp_path / "test.csv", label=["yes", "no", "maybe", "yes", "perhaps"])
    with pytest.raises(BadInput, match=r"test.csv: expected labels among no, yes, found 2 of 5 others"):
        from_table(table_file(tmp_path / "a.csv"), test=other)


# --- a folder per client ---------------------------------------------------------------------------------------------


def test_a_folder_per_client_is_a_federation(tmp_path):
    for client, count in (("north", 4), ("south", 6)):
        for kind, grey in (("cat", 10), ("dog", 200)):
            for number in range(count):
                published.picture(tmp_path / client / kind / f"{number}.png", (grey, grey, grey))
    federation = from_folder(tmp_path, size=8, test=0.25)
    assert federation.source.owner_names == ("north", "south")
    assert federation.sizes == (6, 8)
    assert federation.label_counts().tolist() == [[3, 3], [4, 4]]
    with pytest.raises(BadInput, match=r"nowhere: expected a folder, found nothing there"):
        from_folder(tmp_path / "nowhere")


# --- Hugging Face ----------------------------------------------------------------------------------------------------


def images_dataset(count: int = 12) -> datasets.Dataset:
    features = datasets.Features(
        {
            "image": datasets.Image(),
            "label": datasets.ClassLabel(names=["cat", "dog"]),
            "hospital": datasets.Value("string"),
        }
    )
    rows = {
        "image": [Image.fromarray(np.full((5, 5, 3), 10 * i, dtype=np.uint8)) for i in range(count)],
        "label": [i % 2 for i in range(count)],
        "hospital": [f"h{i % 3}" for i in range(count)],
    }
    return datasets.Dataset.from_dict(rows, features=features)


def test_a_hugging_face_dataset_is_a_federation_by_a_column():
    federation = from_dataset(images_dataset(), client="hospital", test=images_dataset(4))
    assert federation.source.owner_names == ("h0", "h1", "h2")
    assert federation.sizes == (4, 4, 4)
    assert federation.source.class_names == ("cat", "dog")
    assert federation.source.train.shape == (3, 5, 5)
    h1 = federation.client(1)
    assert federation.source.train.x[h1.rows][:, 0, 0, 0].tolist() == [10, 40, 70, 100]
    assert len(federation.test) == 4


def test_a_dataset_dict_brings_its_own_test_part():
    parts = datasets.DatasetDict({"train": images_dataset(), "test": images_dataset(5)})
    federation = from_dataset(parts, client="hospital")
    assert len(federation.test) == 5
    assert sum(federation.sizes) == 12


def test_a_dataset_of_tokens_and_of_numbers_works():
    rows = {"input_ids": [[1, 2, 3]] * 6, "labels": [[2, 3, 4]] * 6, "who": [0, 0, 0, 1, 1, 1]}
    federation = from_dataset(datasets.Dataset.from_dict(rows).with_format("torch"), client="who")
    assert federation.source.classes == 5
    assert federation.source.train.y.shape[1:] == (3,)
    rows = {"a": [[0.5, 1.5]] * 6, "b": [0, 1, 0, 1, 0, 1], "who": ["x"] * 6}
    federation = from_dataset(datasets.Dataset.from_dict(rows), client="who", x="a", y="b")
    assert federation.source.train.shape == (2,)


def test_images_of_different_sizes_need_a_size():
    rows = {"image": [Image.new("L", (4 + i, 4)) for i in range(4)], "label": [0, 1, 0, 1], "who": ["a"] * 4}
    dataset = datasets.Dataset.from_dict(
        rows,
        features=datasets.Features(
            {"image": datasets.Image(), "label": datasets.Value("int64"), "who": datasets.Value("string")}
        ),
    )
    with pytest.raises(BadInput, match=r"images of one size .*found 4 sizes"):
        from_dataset(dataset, client="who")
    assert from_dataset(dataset, client="who", size=6).source.train.shape == (1, 6, 6)


def test_what_is_wrong_with_a_dataset_is_named():
    dataset = images_dataset()
    with pytest.raises(BadInput, match="expected a column 'site', found only 'image', 'label', 'hospital'"):
        from_dataset(dataset, client="site")
    with pytest.raises(BadInput, match=r"none of the columns .* has a usual name"):
        from_dataset(dataset.rename_column("image", "scan"), client="hospital")
    texts = datasets.Dataset.from_dict({"x": [[1.0]] * 2, "y": ["a", "b"], "who": ["a", "b"]})
    with pytest.raises(BadInput, match=r"found texts; encode them with dataset.class_encode_column\('y'\)"):
        from_dataset(texts, client="who")
    ragged = datasets.Dataset.from_dict({"x": [[1, 2], [1]], "y": [0, 1], "who": ["a", "b"]})
    with pytest.raises(BadInput, match="rows of one length"):
        from_dataset(ragged, client="who")
    empty = datasets.Dataset.from_dict({"x": [[1.0], None, None], "y": [0, 1, 0], "who": ["a", "b", "a"]})
    with pytest.raises(BadInput, match="a value in every row of column 'x', found 2 of 3 empty"):
        from_dataset(empty, client="who")


class ByTurns:
    """A partitioner as flwr-datasets defines them: it is given a dataset, and loads partition after partition."""

    def __init__(self, num_partitions: int) -> None:
        self.num_partitions = num_partitions
        self.dataset: datasets.Dataset | None = None

    def load_partition(self, partition_id: int) -> datasets.Dataset:
        assert self.dataset is not None
        return self.dataset.shard(self.num_partitions, partition_id, contiguous=False)


def test_a_partitioner_of_flwr_datasets_is_a_federation():
    partitioner = ByTurns(4)
    partitioner.dataset = images_dataset()
    federation = from_partitioner(partitioner, test=images_dataset(2))
    assert federation.sizes == (3, 3, 3, 3)
    rows = federation.client(2).rows
    assert federation.source.train.x[rows][:, 0, 0, 0].tolist() == [20, 60, 100]


def test_a_partitioner_that_is_installed_works_as_well():
    partitioner = needed("flwr_datasets.partitioner").IidPartitioner(num_partitions=3)
    partitioner.dataset = images_dataset()
    assert from_partitioner(partitioner, test=images_dataset(2)).sizes == (4, 4, 4)


def test_an_empty_partition_is_named():
    partitioner = ByTurns(14)
    partitioner.dataset = images_dataset()
    with pytest.raises(BadInput, match="found 2 of 14 clients with none: partition 12, partition 13"):
        from_partitioner(partitioner)


def test_a_row_without_a_client_is_counted_and_refused(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("client,a,label\nx,1.0,0\n,2.0,1\ny,3.0,1\n")
    with pytest.raises(BadInput, match="1 empty"):
        from_table(path)


def test_numbers_beyond_single_precision_and_tokens_beyond_the_vocabulary_are_refused():
    labels = np.zeros(10, dtype=np.int64)
    with pytest.raises(BadInput, match="client 0"):
        from_arrays([(np.full((10, 3), 1e300), labels)])
    with pytest.raises(BadInput, match="tokens from 0 to 4"):
        from_arrays([(np.full((10, 3), 7), labels)], classes=5, tokens=True)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.int64, bool])
def test_whole_numbers_are_features_unless_they_are_said_to_be_tokens(dtype):
    x = np.array([[0, 1], [1, 0], [1, 1], [0, 0]]).astype(dtype)
    federation = from_arrays([(x, [0, 1, 0, 1])], test=(x, [0, 1, 0, 1]))
    assert federation.source.train.x.dtype == torch.float32
    assert federation.source.classes == 2
    assert federation.source.train.x.tolist() == x.astype(float).tolist()
    if dtype is not bool:
        tokens = from_arrays([(x, [0, 1, 0, 1])], test=(x, [0, 1, 0, 1]), tokens=True)
        assert tokens.source.train.x.dtype == torch.int64
    with pytest.raises(BadInput, match="tokens to be whole numbers, found float64"):
        from_arrays([(x * 1.0, [0, 1, 0, 1])], tokens=True)
    with pytest.raises(BadInput, match=r"targets of shape .*, found .* of shape \(4, 2\); for next tokens say tokens"):
        from_arrays([(x, x.astype(int) + 1)])
    assert from_arrays([(x, x)]).source.train.target == "labels"  # 0 and 1 only: yes or no to each


def test_numbers_that_are_none_are_named_with_client_and_column():
    x, y = pair(6)
    x[1:3, 2], x[4, 0] = np.nan, np.nan
    message = r"south: expected numbers, found 3 of 24 values that are NaN, in column 0 \(1\), 2 \(2\)"
    with pytest.raises(BadInput, match=message):
        from_arrays({"north": pair(6), "south": (x, y)})
    x[:] = np.inf
    with pytest.raises(
        BadInput, match=r"north: expected numbers, found 24 of 24 values that are infinite, in column 0"
    ):
        from_arrays({"north": (x, y)})


def test_arrays_of_16_bits_are_images_that_are_scaled_by_the_range_of_all_clients():
    dark, bright = (np.linspace(*ends, 4 * 36).reshape(4, 6, 6).astype(np.uint16) for ends in ((100, 900), (500, 4100)))
    federation = from_arrays({"a": (dark, [0, 1, 0, 1]), "b": (bright, [0, 1, 0, 1])}, test=(dark, [0, 1, 0, 1]))
    x, _ = federation.source.train.take(slice(0, 8))
    assert x.shape == (8, 1, 6, 6)
    assert float(x[0, 0, 0, 0]) == pytest.approx(-1)
    assert float(x[7, 0, 5, 5]) == pytest.approx(1)
    assert float(x[3, 0, 5, 5]) == pytest.approx(2 * 800 / 4000 - 1, abs=1e-3)
    assert federation.source.prepared.messages == (2, 2)
    given = from_arrays([(dark, [0, 1, 0, 1])], levels=(0, 1000))
    assert float(given.source.train.x.max()) <= 0.9
    assert given.source.prepared.messages == (0, 0)
    with pytest.raises(
        BadInput, match=r"levels must be two numbers, the smaller first, such as \[0, 4095\], not \[5\]"
    ):
        from_arrays([(dark, [0, 1, 0, 1])], levels=(5,))
    with pytest.raises(BadInput, match="images with something on them, found 7 in every pixel"):
        from_arrays([(np.full((4, 6, 6), 7, np.uint16), [0, 1, 0, 1])])


def test_texts_are_told_apart_into_fewer_classes_than_there_are_tokens_if_it_is_said():
    texts = np.array([[3, 900], [7, 12], [900, 1], [4, 4]])
    source = from_arrays({"a": (texts, [0, 1, 0, 1])}, test=(texts, [0, 1, 0, 1]), tokens=1000).source
    assert source.classes == 2
    with pytest.raises(BadInput, match="tokens from 0 to 899"):
        from_arrays({"a": (texts, [0, 1, 0, 1])}, test=0.5, tokens=900)
