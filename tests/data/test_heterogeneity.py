"""The figures of a split are the textbook ones, and its picture shows what is there."""

from __future__ import annotations

from io import StringIO
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image
from rich.console import Console

from fedrelay.data import Dirichlet, Examples, Federation, Iid, Source, describe, heatmap, rendered, synthetic
from fedrelay.data.heterogeneity import gini, jensen_shannon, label_mixes, total_variation
from fedrelay.data.own import from_arrays, from_frames
from fedrelay.data.picture import STOPS, colours, fewer_classes, mosaic, ticks


def federation_of(labels: list[list[int]], names: tuple[str, ...] = ()) -> Federation:
    """A federation with these labels at each client."""
    flat = torch.tensor([label for own in labels for label in own])
    examples = Examples(torch.zeros(len(flat), 1), flat)
    ends = np.cumsum([len(own) for own in labels])
    source = Source("made up", examples, examples, int(flat.max()) + 1, class_names=names)
    return Federation.of(source, np.split(np.arange(len(flat)), ends[:-1]))


def test_equal_clients_are_at_no_distance() -> None:
    found = describe(federation_of([[0, 1, 1, 2]] * 5))
    assert found["clients"] == 5
    assert found["sizes"] == {"smallest": 4, "median": 4, "largest": 4}
    assert found["gini"] == pytest.approx(0)
    assert found["mix"] is not None
    assert found["mix"]["classes_per_client"] == {"smallest": 3, "median": 3, "largest": 3}
    assert found["mix"]["total_variation"] == pytest.approx(0)
    assert found["mix"]["jensen_shannon"] == pytest.approx(0)


def test_one_class_each_of_two_is_half_of_everything() -> None:
    # Mixes (1, 0) and (0, 1) against (1/2, 1/2): TV = 1/2 and L1 = 1. By hand, with the middle (3/4, 1/4) in between:
    # JS = ½ [1·log2(4/3)] + ½ [½ log2(2/3) + ½ log2 2] = 0.311278…
    mix = describe(federation_of([[0, 0], [1, 1]]))["mix"]
    assert mix is not None
    assert mix["total_variation"] == pytest.approx(0.5)
    assert mix["earth_mover"] == pytest.approx(1.0)
    assert mix["jensen_shannon"] == pytest.approx(0.3112781244591328)


def test_gini_of_known_sizes() -> None:
    # Mean absolute difference over twice the mean, by hand: (1, 3): 1 / (2·2) = 1/4; (0, 0, 0, 1): 3/4.
    assert gini(np.array([3, 1])) == pytest.approx(0.25)
    assert gini(np.array([0, 0, 1, 0])) == pytest.approx(0.75)


@given(st.lists(st.integers(1, 50), min_size=1, max_size=20))
def test_gini_is_the_mean_difference_over_twice_the_mean(sizes: list[int]) -> None:
    differences = np.mean([abs(a - b) for a in sizes for b in sizes])
    assert gini(np.array(sizes)) == pytest.approx(differences / (2 * np.mean(sizes)))


@given(st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=8), min_size=1, max_size=8))
def test_distances_stay_within_their_bounds(labels: list[list[int]]) -> None:
    counts = federation_of(labels).label_counts()
    mixes, overall = label_mixes(counts), counts.sum(axis=0) / counts.sum()
    variation, divergence = total_variation(mixes, overall), jensen_shannon(mixes, overall)
    assert (variation >= 0).all()
    assert (variation <= 1).all()
    # Pinsker-like bounds of the Jensen-Shannon divergence in bits: TV² / (2 ln 2) ≤ JS ≤ TV.
    assert (divergence >= variation**2 / (2 * np.log(2)) - 1e-9).all()
    assert (divergence <= variation + 1e-9).all()


def test_a_more_skewed_split_has_larger_distances() -> None:
    source = synthetic(examples=2000, shape=(1,), test_examples=1)
    found = [describe(Federation.split(source, how, 20))["mix"] for how in (Iid(), Dirichlet(0.5), Dirichlet(0))]
    distances = [mix["jensen_shannon"] for mix in found if mix is not None]
    assert distances == sorted(distances)
    assert distances[0] < 0.1 < distances[1] < distances[2]


def test_unused_and_repeated_examples_are_counted() -> None:
    source = synthetic(examples=10, shape=(1,), classes=2, test_examples=1)
    found = describe(Federation.of(source, [np.array([0, 0, 1]), np.array([1, 5])]))
    assert (found["examples"], found["unused"], found["repeated"]) == (5, 7, 2)


def test_examples_without_a_class_still_have_sizes() -> None:
    tokens = Examples(torch.zeros(4, 3), torch.zeros(4, 3, dtype=torch.int64))
    federation = Federation.of(Source("text", tokens, tokens, 80), [np.array([0]), np.array([1, 2, 3])])
    assert describe(federation)["mix"] is None
    assert "text" in shown(federation)


def shown(federation: Federation) -> str:
    console = Console(width=100, file=StringIO())
    console.print(rendered(federation))
    text: str = console.file.getvalue()  # type: ignore[attr-defined]
    return text


def test_the_terminal_shows_a_full_cell_for_a_client_of_one_class() -> None:
    text = shown(federation_of([[0, 0], [1, 1, 1]]))
    assert "2 / 2.5 / 3" in text
    lines = [line for line in text.splitlines() if "█" in line]
    assert [line.split()[0] for line in lines] == ["0", "1"]
    assert lines[0].index("█") < lines[1].index("█")


def test_clients_that_have_names_are_shown_by_them() -> None:
    x = np.zeros((4, 2), dtype="float32")
    hospitals = {"Ulm": (x, [0, 0, 1, 1]), "Hospital of the Holy Spirit": (x, [0, 1, 1, 0])}
    federation = from_arrays(hospitals, test=(x, [0, 0, 1, 1]))
    assert mosaic(federation, 20, 60).columns == ("Ulm", "Hospital of the…")
    assert any(
        line.startswith("Ulm ") and line.endswith(" 4") for line in map(str.rstrip, shown(federation).splitlines())
    )


def test_what_the_columns_of_a_table_were_taken_for_is_shown() -> None:
    rows = {
        "age": [30, 41.5, 52, 60],
        "born": ["2020-01-31", "", "2020-05-01", "2021-02-03"],
        "ward": ["a", "b", "b", ""],
    }
    frame = pa.table({"client": ["Ulm"] * 4, **rows, "same": [1, 1, 1, 1], "label": ["no", "yes", "no", "yes"]})
    text = " ".join(shown(from_frames(frame, test=frame)).split())
    assert "columns numbers: age; dates: born; categories: ward (2); the same everywhere: same" in text


def test_the_picture_has_the_right_colour_for_every_client_and_class(tmp_path: Path) -> None:
    federation = federation_of([[0, 0], [1, 1], [0, 1]], names=("cat", "dog"))
    with Image.open(heatmap(federation, tmp_path / "new" / "mix.png")) as image:
        assert image.format == "PNG"
        pixels = np.asarray(image.convert("RGB"))
    full, half = STOPS[-1], tuple(colours(np.array(0.5)).tolist())
    places = np.argwhere((pixels == full).all(axis=-1))
    # Cells are 40 x 24: the full ones are those of client 0 / class 0 and client 1 / class 1, one cell apart each way.
    top, left = places.min(axis=0)
    assert tuple(pixels[top + 12, left + 20]) == full
    assert tuple(pixels[top + 36, left + 60]) == full
    assert tuple(pixels[top + 12, left + 60]) == STOPS[0]
    assert tuple(pixels[top + 12, left + 100]) == half
    assert tuple(pixels[top + 36, left + 100]) == half


def test_many_clients_are_put_together_with_those_alike() -> None:
    labels = [[client % 3] * 2 for client in range(999)]
    picture = mosaic(federation_of(labels), 30, 200)
    assert picture.mixes.shape == (30, 3)
    # 333 clients of each class in 30 columns: all but the columns on the two borders are pure.
    assert (picture.mixes.max(axis=1) == 1).sum() >= 28
    assert picture.mixes.sum(axis=1) == pytest.approx(np.ones(30))
    assert picture.sizes.tolist() == [2] * 30


def test_many_classes_become_the_commonest_and_the_others() -> None:
    counts = np.array([[5, 1, 4, 1], [5, 1, 0, 3]])
    fewer, names = fewer_classes(counts, ("a", "b", "c", "d"), 3)
    assert names == ("a", "c", "others")
    assert fewer.tolist() == [[5, 4, 2], [5, 0, 4]]


@pytest.mark.parametrize("clients", [1, 200, 201, 3000])
def test_a_picture_of_any_number_of_clients_and_classes_can_be_drawn(clients: int, tmp_path: Path) -> None:
    source = synthetic(examples=3000, shape=(1,), classes=250, test_examples=1)
    path = heatmap(Federation.split(source, Iid(), clients), tmp_path / "mix.png")
    with Image.open(path) as image:
        assert image.width < 1300
        assert image.height < 1300


@given(count=st.integers(1, 100_000), length=st.floats(1, 2000), room=st.floats(5, 100))
def test_labels_along_an_axis_never_overlap(count: int, length: float, room: float) -> None:
    chosen = ticks(count, length, room)
    assert chosen[0] == 0
    assert chosen[-1] < count
    assert len(chosen) == 1 or (chosen[1] - chosen[0]) * length / count >= room * 0.999
