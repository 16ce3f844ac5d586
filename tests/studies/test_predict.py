"""Predictions from tables, images, arrays and data sets, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import fedrelay as fr
from fedrelay import BadInput, Recorder
from fedrelay.data.own import from_arrays, from_folder, from_table
from fedrelay.engines import Inline
from fedrelay.models import Logistic, Own
from fedrelay.studies.predict import predict
from fedrelay.tasks import Quantile


def trained(folder: Path, federation, model=None, *, loss=None, lr=0.5) -> Path:
    task = fr.Task.of(model or Logistic(), federation, loss=loss)
    algorithm = fr.method(local=fr.Sgd(lr=lr, batch=8), fraction=1.0)
    options = {"rounds": 5, "federation": federation}
    for _ in Recorder(folder, algorithm, Inline(federation, task, seed=0), federation.test, **options).run():
        pass
    return folder


def points(rng, count=40):
    """Two classes that one line parts."""
    y = rng.integers(0, 2, count)
    return (y[:, None] * [4.0, -4.0] + rng.normal(0, 0.1, (count, 2))).astype(np.float32), y


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    rng = np.random.default_rng(0)
    federation = from_arrays([points(rng), points(rng)], class_names=("low", "high"))
    return trained(tmp_path_factory.mktemp("points") / "run", federation)


def written(path: Path, text: str) -> str:
    path.write_text(text, encoding="utf-8")
    return str(path)


# --- tables


def test_the_rows_of_a_table_of_numbers_are_predicted_with_the_chances_of_all_classes(run, tmp_path):
    found = predict(run, written(tmp_path / "new.csv", "a,b\n4,-4\n0,0\n4.2,-3.9\n"))
    assert [row["prediction"] for row in found.rows] == ["high", "low", "high"]
    assert [row["row"] for row in found.rows] == ["0", "1", "2"]
    assert found.accuracy is None
    weights = torch.load(run / "model.pt", weights_only=True)
    logits = np.array([4.0, -4.0]) @ weights["head.weight"].numpy().T + weights["head.bias"].numpy()
    chances = np.exp(logits) / np.exp(logits).sum()
    assert (found.rows[0]["p(low)"], found.rows[0]["p(high)"]) == pytest.approx(tuple(chances), abs=1e-5)
    assert found.rows[0]["confidence"] == pytest.approx(chances.max(), abs=1e-5)


def test_a_column_of_labels_is_what_predictions_are_judged_by(run, tmp_path):
    found = predict(run, written(tmp_path / "new.csv", "label,a,b\nhigh,4,-4\nhigh,0,0\nlow,0,0\nlow,0,0.1\n"))
    assert found.accuracy == 0.75
    assert [row["label"] for row in found.rows] == ["high", "high", "low", "low"]


def test_rows_without_a_label_are_predicted_but_not_judged(run, tmp_path):
    found = predict(run, written(tmp_path / "new.csv", "label,a,b\nhigh,4,-4\n,4,-4\nhigh,0,0\n"))
    assert [row["label"] for row in found.rows] == ["high", "", "high"]
    assert [row["prediction"] for row in found.rows] == ["high", "high", "low"]
    assert (found.right, found.judged, found.accuracy) == (1, 2, 0.5)
    assert predict(run, written(tmp_path / "new.csv", "label,a,b\n,4,-4\n,0,0\n")).accuracy is None


def test_parquet_is_read_too(run, tmp_path):
    import pyarrow as pa
    from pyarrow import parquet

    parquet.write_table(pa.table({"a": [4.0], "b": [-4.0]}), tmp_path / "new.parquet")
    assert predict(run, str(tmp_path / "new.parquet")).rows[0]["prediction"] == "high"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a,b,c\n1,2,3\n", r"inputs of shape \(2,\).*found 3 columns of inputs: a, b, c"),
        ("a\n1\n", r"inputs of shape \(2,\).*found 1 columns of inputs: a"),
        ("a,b\n1,x\n", "column 'b' to be numbers"),
        ("a,b\n1,\n2,3\n", "a value in every row of column 'b', found 1 empty"),
        ("a,b\n1,inf\n", "column 'b' to be numbers"),
        ("a,b\n1,1e300\n", "finite values, found 1 of 2 outside"),
        ("a,b\n", "at least one example, found none"),
        (
            "a,b,label\n1,2,middle\n",
            r"classes that the model knows in 'label' \(low, high\), found 1 of 1 others: 'mid",
        ),
    ],
)
def test_a_table_that_does_not_fit_is_refused_in_words(run, tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        predict(run, written(tmp_path / "new.csv", text))


@pytest.fixture(scope="module")
def hospital(tmp_path_factory) -> Path:
    """Trained on a table with words, gaps and decimal commas; who smokes and weighs more is ill."""
    rng, folder = np.random.default_rng(1), tmp_path_factory.mktemp("table")
    rows = [
        f"{name};{'ill' if kind else 'well'};{'yes' if kind else 'no'};{80 + 20 * kind + noise:.1f}".replace(".", ",")
        for name in ("Ulm", "Wien")
        for kind, noise in zip(rng.integers(0, 2, 60), rng.normal(0, 2, 60), strict=True)
    ]
    table = written(folder / "table.csv", "\n".join(["Klinik;Diagnose;smokes;weight", *rows, "Ulm;ill;yes;"]) + "\n")
    return trained(folder / "run", from_table(table, client="Klinik", label="Diagnose"))


def test_a_new_table_is_prepared_as_the_one_that_was_trained_on(hospital, tmp_path):
    found = predict(hospital, written(tmp_path / "new.csv", "weight,extra,smokes\n101.5,1,yes\n79,2,no\n,3,yes\n"))
    assert [row["prediction"] for row in found.rows] == ["ill", "well", "ill"]
    assert found.accuracy is None
    judged = predict(hospital, written(tmp_path / "new.csv", "weight;smokes;Diagnose\n101,5;yes;ill\n79,0;no;ill\n"))
    assert judged.accuracy == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("weight\n80\n", r"columns 'smokes', found 1 missing; there is: weight"),
        ("weight,smokes\n80,maybe\n", r"column 'smokes' to hold categories .*'maybe'"),
        ("weight,smokes\nheavy,no\n", "column 'weight' to be numbers"),
        ("weight,smokes,Diagnose\n80,no,dead\n", r"classes that the model knows in 'Diagnose' \(ill, well\).*'dead'"),
    ],
)
def test_a_table_of_other_columns_or_words_is_refused(hospital, tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        predict(hospital, written(tmp_path / "new.csv", text))


def test_one_output_for_two_classes_is_told_as_classes_with_their_chances(tmp_path):
    rng = np.random.default_rng(0)
    federation = from_arrays([points(rng), points(rng)], class_names=("low", "high"))
    run = trained(tmp_path / "run", federation, loss="binary_cross_entropy")
    weights = torch.load(run / "model.pt", weights_only=True)
    logit = np.array([4.0, -4.0]) @ weights["head.weight"].numpy()[0] + float(weights["head.bias"])
    found = predict(run, written(tmp_path / "new.csv", "a,b,label\n4,-4,high\n0,0,low\n"))
    assert [row["prediction"] for row in found.rows] == ["high", "low"]
    assert found.rows[0]["p(high)"] == pytest.approx(1 / (1 + np.exp(-logit)), abs=1e-5)
    assert found.accuracy == 1.0


@pytest.mark.parametrize(("loss", "outputs"), [("mse", 1), (Quantile(quantiles=(0.1, 0.5, 0.9)), 3)])
def test_numbers_are_predicted_for_a_table_that_has_its_label_column(tmp_path, loss, outputs):
    rows = "".join(f"{client},{a},{0.5 * a + 0.25}\n" for client in "xy" for a in range(20))
    table = written(tmp_path / "stay.csv", "client,a,days\n" + rows)
    run = trained(tmp_path / "run", from_table(table, label="days", target="numbers"), loss=loss, lr=0.05)
    found = predict(run, table)
    weights = torch.load(run / "model.pt", weights_only=True)
    assert weights["head.weight"].shape == (outputs, 1)
    title = "output" if outputs == 1 else "output 0"
    difference = found.rows[19][title] - found.rows[0][title]
    scale = json.loads((run / "preparation.json").read_text())["numbers"][0]["deviation"]
    assert difference == pytest.approx(19 / scale * float(weights["head.weight"][0, 0]), abs=1e-4)
    assert found.accuracy is None


# --- arrays


def test_arrays_of_inputs_are_predicted_and_judged_where_they_have_classes(run, tmp_path):
    x = np.array([[4.0, -4.0], [0.0, 0.0]])
    np.save(tmp_path / "x.npy", x)
    assert [row["prediction"] for row in predict(run, str(tmp_path / "x.npy")).rows] == ["high", "low"]
    np.savez(tmp_path / "xy.npz", x=x, y=np.array(["high", "high"]))
    assert predict(run, str(tmp_path / "xy.npz")).accuracy == 0.5


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": np.zeros((3, 5))}, r"inputs of shape \(2,\), as the model takes them, found \(5,\)"),
        ({"x": np.zeros((0, 2))}, "at least one example"),
        ({"x": np.full((3, 2), np.nan)}, "6 of 6 values that are NaN"),
        ({"x": np.array([["a", "b"]])}, "numbers, found <U1"),
        ({"z": np.zeros((3, 2))}, "an array x of inputs, found only z"),
        ({"x": np.zeros((3, 2)), "y": np.zeros(3, dtype=int)}, "classes that the model knows in 'y'"),
        ({"x": np.zeros((3, 2)), "y": np.array(["low"])}, "3 inputs and 1 classes"),
    ],
)
def test_arrays_that_do_not_fit_are_refused_in_words(run, tmp_path, arrays, message):
    np.savez(tmp_path / "new.npz", **arrays)
    with pytest.raises(BadInput, match=message):
        predict(run, str(tmp_path / "new.npz"))


@pytest.mark.parametrize("damage", [slice(-30, None), slice(30, 60), slice(0, 4), slice(150, 170)])
def test_damaged_arrays_to_predict_are_refused_by_name(run, tmp_path, damage):
    path = tmp_path / "x.npz"
    np.savez_compressed(path, x=np.zeros((50, 2), dtype=np.float32), y=np.array(["low"] * 50))
    content = bytearray(path.read_bytes())
    content[damage] = b"\xff" * len(content[damage])
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"x\.npz: expected arrays that NumPy has saved"):
        predict(run, str(path))


def test_arrays_that_are_said_to_be_encrypted_are_refused_by_name(run, tmp_path):
    path = tmp_path / "x.npz"
    np.savez(path, x=np.zeros((50, 2), dtype=np.float32))
    content = bytearray(path.read_bytes())
    content[content.index(b"PK\x01\x02") + 8] |= 1  # the flag of the directory's entry
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"x\.npz: expected arrays that NumPy has saved.*encrypted"):
        predict(run, str(path))


def test_grey_images_of_bytes_fit_with_channels_first_last_or_none(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(40) % 2
    pixels = (rng.integers(0, 50, (40, 5, 4)) + 200 * y[:, None, None]).astype(np.uint8)
    folder = trained(tmp_path / "run", from_arrays([(pixels, y), (pixels, y)]))
    for name, x in (("none", pixels), ("last", pixels[..., None]), ("first", pixels[:, None])):
        np.savez(tmp_path / f"{name}.npz", x=x, y=y)
        assert predict(folder, str(tmp_path / f"{name}.npz")).accuracy == 1
    np.savez(tmp_path / "floats.npz", x=pixels / 255, y=y)
    assert predict(folder, str(tmp_path / "floats.npz")).accuracy == 1
    for x, message in ((pixels / 1.0, "from 0 to 1"), (pixels.astype(np.int64), "images of bytes, or of floats")):
        np.save(tmp_path / "wrong.npy", x)
        with pytest.raises(BadInput, match=message):
            predict(folder, str(tmp_path / "wrong.npy"))


def test_tokens_outside_the_vocabulary_are_refused(tmp_path):
    x = np.arange(24).reshape(6, 4) % 6
    federation = from_arrays([(x, np.roll(x, -1, axis=1))] * 2, tokens=True)
    folder = trained(tmp_path / "run", federation, fr.models.WordLstm(embedding=4, hidden=4))
    np.save(tmp_path / "x.npy", x)
    found = predict(folder, str(tmp_path / "x.npy"))
    assert [len(row["prediction"].split()) for row in found.rows] == [4] * 6
    np.save(tmp_path / "x.npy", x + 3)
    with pytest.raises(BadInput, match="tokens from 0 to 5, found 12 outside"):
        predict(folder, str(tmp_path / "x.npy"))


# --- images


def drawn(path: Path, colour: tuple[int, int, int], size=(9, 7)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, colour).save(path)


def test_images_of_a_folder_are_predicted_as_they_were_trained(tmp_path):
    for client in ("Ulm", "Wien"):
        for number in range(10):
            drawn(tmp_path / "train" / client / "red" / f"{number}.png", (200 + number, 10, 10))
            drawn(tmp_path / "train" / client / "blue" / f"{number}.png", (10, 10, 200 + number))
    folder = trained(tmp_path / "run", from_folder(tmp_path / "train", size=4))
    drawn(tmp_path / "new" / "a.png", (220, 20, 20), size=(30, 20))
    drawn(tmp_path / "new" / "more" / "b.png", (20, 20, 220))
    (tmp_path / "new" / "notes.txt").write_text("not an image")
    found = predict(folder, str(tmp_path / "new"))
    assert {row["file"]: row["prediction"] for row in found.rows} == {"a.png": "red", "more/b.png": "blue"}
    (tmp_path / "new" / "c.png").write_bytes(b"no image")
    with pytest.raises(BadInput, match=r"c\.png: expected an image"):
        predict(folder, str(tmp_path / "new"))
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match="expected images, found no file"):
        predict(folder, str(tmp_path / "empty"))


def deep(path: Path, level: int) -> None:
    """A grey image of 16 bits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((6, 6), level, dtype=np.uint16)).save(path)


@pytest.mark.parametrize("on_disk", [False, True])
def test_images_of_16_bits_are_scaled_by_the_range_of_training(tmp_path, on_disk):
    for client in ("Ulm", "Wien"):
        for number in range(10):
            deep(tmp_path / "train" / client / "dark" / f"{number}.png", 1000 + number)
            deep(tmp_path / "train" / client / "light" / f"{number}.png", 3000 + number)
    folder = trained(tmp_path / "run", from_folder(tmp_path / "train", size=4, on_disk=on_disk))
    deep(tmp_path / "new" / "a.png", 1100)  # alone, each of them is its own darkest and lightest
    deep(tmp_path / "new" / "b.png", 2900)
    found = predict(folder, str(tmp_path / "new"))
    assert {row["file"]: row["prediction"] for row in found.rows} == {"a.png": "dark", "b.png": "light"}
    np.save(tmp_path / "x.npy", np.stack([np.full((4, 4), level, dtype=np.uint16) for level in (1100, 2900)]))
    assert [row["prediction"] for row in predict(folder, str(tmp_path / "x.npy")).rows] == ["dark", "light"]
    drawn(tmp_path / "colour" / "c.png", (200, 0, 0))
    with pytest.raises(BadInput, match="grey images of more than 8 bits, found images of 8 bits"):
        predict(folder, str(tmp_path / "colour"))


def test_images_for_a_model_of_grey_bytes_become_grey(tmp_path):
    y = np.arange(40) % 2
    shades = (np.full((40, 5, 5), 20) + 200 * y[:, None, None]).astype(np.uint8)
    folder = trained(tmp_path / "run", from_arrays([(shades, y)] * 2))
    drawn(tmp_path / "new" / "a.png", (220, 220, 220))
    drawn(tmp_path / "new" / "b.jpg", (20, 20, 20))
    assert [row["prediction"] for row in predict(folder, str(tmp_path / "new")).rows] == ["1", "0"]


def test_a_folder_of_images_is_refused_where_inputs_are_no_images(run, tmp_path):
    drawn(tmp_path / "a.png", (0, 0, 0))
    with pytest.raises(BadInput, match=r"inputs of shape \(2,\) of float32, found a folder of images"):
        predict(run, str(tmp_path))


# --- data sets, and what is none


def test_the_test_part_of_a_data_set_is_judged_like_in_the_run(tmp_path):
    tables = {
        "rounds": 3,
        "data": {"name": "digits", "clients": 4},
        "model": {"name": "logistic"},
        "algorithm": {"name": "fedavg", "fraction": 1.0},
        "engine": {"name": "inline"},
    }
    recorder = fr.config.build(tables).record(tmp_path / "run")
    list(recorder.run())
    assert predict(tmp_path / "run", "digits").accuracy == pytest.approx(recorder.summary().final_accuracy)
    file = written(tmp_path / "other.toml", '[data]\nname = "digits"\nclients = 9\n')
    assert predict(tmp_path / "run", file).accuracy == pytest.approx(recorder.summary().final_accuracy)
    with pytest.raises(BadInput, match=r"synthetic: expected inputs of shape \(1, 8, 8\)"):
        predict(tmp_path / "run", "synthetic")


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("digit", "digit is no file, no folder and no data set; did you mean 'digits'"),
        ("nothing.csv", r"nothing\.csv: expected a file, found nothing there"),
        ("nothing.npy", r"nothing\.npy: expected a file, found nothing there"),
    ],
)
def test_what_is_neither_a_file_nor_a_data_set_is_refused(run, data, message):
    with pytest.raises(BadInput, match=message):
        predict(run, data)


def test_a_file_of_another_kind_is_refused(run, tmp_path):
    with pytest.raises(BadInput, match=r"a name that ends in \.csv"):
        predict(run, written(tmp_path / "new.xlsx", "x"))


def test_a_network_of_ones_own_says_how_to_be_used(tmp_path):
    rng = np.random.default_rng(0)
    federation = from_arrays([points(rng)] * 2)
    folder = trained(tmp_path / "run", federation, Own(torch.nn.Linear(2, 2)))
    with pytest.raises(BadInput, match=r"is your own \(Linear\)"):
        predict(folder, "digits")
