"""Tables of one's own: what is found out about them, what is refused, and how federated statistics prepare them."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow
import pytest
import torch
from pyarrow import parquet
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import fedrelay as fr
from fedrelay.config.federation import federate
from fedrelay.data.own import from_frames, from_table
from fedrelay.data.survey import survey
from fedrelay.data.tables.columns import typed
from fedrelay.data.tables.preparation import Preparation
from fedrelay.data.tables.reading import delimiter_of, read
from fedrelay.data.tables.statistics import TableStatistics, clients_of, merged
from fedrelay.data.tables.table import Column, Declared, Table
from fedrelay.engines import Inline
from fedrelay.errors import BadInput
from fedrelay.tasks import Workspaces


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def hospitals(rows: int = 400, seed: int = 0) -> pd.DataFrame:
    """Eight hospitals whose patients differ: numbers, words, dates and gaps; who is ill depends on them all."""
    rng = np.random.default_rng(seed)
    site = np.sort(rng.integers(0, 8, rows))
    age = rng.normal(40 + 4 * site, 12)
    marker = rng.lognormal(3, 0.5, rows)
    ward = rng.choice(["heart", "lung", "skin"], rows, p=[0.5, 0.3, 0.2])
    admitted = rng.integers(0, 2000, rows)
    score = (
        (age - 55) / 10 + (marker - 22) / 8 + 2 * (ward == "heart") - 1.5 * (ward == "skin") + (admitted - 1000) / 600
    )
    ill = np.where(score + rng.logistic(0, 0.5, rows) > 0.5, "yes", "no")
    frame = pd.DataFrame(
        {
            "hospital": [f"H{number}" for number in site],
            "age": np.round(age, 1),
            "marker": np.round(marker, 3),
            "ward": ward,
            "admitted": pd.Timestamp("2018-01-01") + pd.to_timedelta(admitted, unit="D"),
            "ill": ill,
        }
    )
    for column, share in (("age", 0.1), ("marker", 0.05), ("ward", 0.08), ("admitted", 0.05)):
        frame.loc[rng.random(rows) < share, column] = None
    return frame


def as_a_hospital_writes(frame: pd.DataFrame, path: Path) -> Path:
    """With semicolons, decimal commas and days first."""
    frame.to_csv(path, sep=";", decimal=",", date_format="%d.%m.%Y", index=False)
    return path


def pooled_by_scikit_learn(frame: pd.DataFrame) -> ColumnTransformer:
    """The same preparation fitted to all rows in one place."""
    return ColumnTransformer(
        [
            ("numbers", make_pipeline(SimpleImputer(), StandardScaler()), ["age", "marker", "admitted"]),
            (
                "words",
                make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(sparse_output=False)),
                ["ward"],
            ),
        ]
    ).fit(numbered(frame))


def numbered(frame: pd.DataFrame) -> pd.DataFrame:
    """With dates as days and gaps as NaN, as scikit-learn wants them."""
    days = (frame["admitted"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    return frame.assign(admitted=days, ward=frame["ward"].astype(object).where(frame["ward"].notna(), np.nan))


# --- found out -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
def test_the_delimiter_is_found_out(tmp_path, delimiter):
    lines = ["client", "a", "b", "label"], ["x", "1.5", "one, two; or\tthree|four", "0"], ["y", "2", "five", "1"]
    text = "\n".join(delimiter.join(f'"{cell}"' for cell in line) for line in lines)
    assert delimiter_of(text) == delimiter
    raw = read(written(tmp_path / "t.csv", text))
    assert raw.names == ["client", "a", "b", "label"]
    assert raw.table["b"].to_pylist() == ["one, two; or\tthree|four", "five"]


CELLS = {
    "numbers with points": (["1.5", "-2", "", "3e2"], "number", [1.5, -2, None, 300]),
    "numbers with commas": (["1,5", "-2", "NA", "0,25"], "number", [1.5, -2, None, 0.25]),
    "a dash among numbers": (["1", "-", "3", "4"], "number", [1, None, 3, 4]),
    "words": (["b", "a", " b ", "?"], "category", ["b", "a", "b", None]),
    "none is a word among words": (["none", "some", "some", "none"], "category", ["none", "some", "some", "none"]),
    "postal codes": (["01234", "99999", "20000", ""], "category", ["01234", "99999", "20000", None]),
    "dates with years first": (["1970-01-02", "1970-01-03T12:00", "", "1969-12-31"], "date", [1, 2.5, None, -1]),
    "dates with dots": (["02.01.1970", "03.01.1970 12:00", "", "4.1.1970"], "date", [1, 2.5, None, 3]),
    "dates with a day after the 12th": (["02/01/1970", "13/01/1970", "", ""], "date", [1, 12, None, None]),
    "dates with a month first": (["01/02/1970", "01/13/1970", "", ""], "date", [1, 12, None, None]),
    "dates in another time zone": (["1970-01-02T01:00+01:00", "", "", ""], "date", [1, None, None, None]),
}


@pytest.mark.parametrize("name", CELLS)
def test_what_a_column_is_is_found_out(tmp_path, name):
    cells, kind, values = CELLS[name]
    raw = read(written(tmp_path / "t.csv", "\n".join(["a;b", *(f"{cell};1" for cell in cells)])))
    column = typed(raw, "a", Declared())
    assert column.kind == kind
    expected = [np.nan if value is None and kind != "category" else value for value in values]
    assert column.values.tolist() == pytest.approx(expected, nan_ok=True) if kind != "category" else expected
    assert column.filled.tolist() == [value is not None for value in values]


def test_what_is_declared_is_not_found_out(tmp_path):
    raw = read(written(tmp_path / "t.csv", "code,day\n1,03/04/1970\n2,05/06/1970\n"))
    assert typed(raw, "code", Declared(categories=("code",))).values.tolist() == ["1", "2"]
    assert typed(raw, "day", Declared(day_first=True)).values.tolist() == [31 + 28 + 31 + 2, 151 + 4]
    assert typed(raw, "day", Declared(day_first=False)).values.tolist() == [31 + 28 + 3, 120 + 5]
    with pytest.raises(
        BadInput, match=r"'day' has dates such as '03/04/1970' that can be read in two ways: say day_first"
    ):
        typed(raw, "day", Declared())


AMBIGUOUS = {
    "column 'a' to have one decimal sign, found points and commas": "a;b\n1.5;x\n2,5;y\n",
    "column 'a' to be numbers without commas, found '1,234', which may be 1234 or 1.234": 'a,b\n"1,234",x\n"2,345",y\n',
    "column 'a' to have decimal commas too, found '1.234'": "a;b\n1.234;2,5\n2.345;3,5\n",
    r"column 'a' to be numbers, found 1 of 4 different cells that are none: 'old'": "a;b\n1;x\n2;x\n3;x\nold;x\n",
    r"column 'a' to be dates, found '31.02.2020'": "a;b\n31.02.2020;x\n",
    "'a' more than once": "a;a\n1;2\n",
}


@pytest.mark.parametrize("message", AMBIGUOUS)
def test_cells_that_can_be_read_in_two_ways_are_refused_by_column(tmp_path, message):
    path = written(tmp_path / "t.csv", AMBIGUOUS[message])
    with pytest.raises(BadInput, match=message):
        typed(read(path), "a", Declared())


def test_a_column_without_a_name_is_left_out_and_told(tmp_path):
    frame = hospitals(50)
    frame.to_csv(tmp_path / "t.csv")  # pandas writes the row numbers first
    federation = from_table(tmp_path / "t.csv", client="hospital", label="ill")
    assert federation.source.preparation.columns == ("age", "marker", "admitted", "ward")
    assert federation.source.notes == ("1 columns without a name are left out",)


def test_a_table_that_is_not_in_unicode_is_read(tmp_path):
    (tmp_path / "t.csv").write_bytes("client;größe;label\nMünchen;1,5;ja\nKöln;2;nein\nKöln;3;ja\n".encode("cp1252"))
    federation = from_table(tmp_path / "t.csv")
    assert federation.source.owner_names == ("Köln", "München")
    assert federation.source.notes == ("t.csv is not UTF-8 and was read as Windows-1252",)


def frame_of(kind: str, frame: pd.DataFrame, folder: Path) -> object:
    if kind == "pandas":
        return frame
    if kind == "polars":
        polars = pytest.importorskip("polars")
        return polars.from_arrow(pyarrow.Table.from_pandas(frame, preserve_index=False))
    path = folder / f"t.{kind}"
    if kind == "parquet":
        parquet.write_table(pyarrow.Table.from_pandas(frame, preserve_index=False), path)
        return path
    return as_a_hospital_writes(frame, path)


@pytest.mark.parametrize("kind", ["pandas", "polars", "parquet", "csv"])
def test_files_and_frames_of_the_same_rows_are_the_same_federation(tmp_path, kind):
    frame = hospitals()
    one = from_frames(frame, client="hospital", label="ill", name="t")
    source = frame_of(kind, frame, tmp_path)
    read_ = from_table if isinstance(source, Path) else from_frames
    other = read_(source, client="hospital", label="ill", **({} if isinstance(source, Path) else {"name": "t"}))
    assert torch.equal(one.source.train.x, other.source.train.x)
    assert torch.equal(one.source.test.y, other.source.test.y)
    assert one.fingerprint == other.fingerprint


# --- prepared --------------------------------------------------------------------------------------------------------


def test_federated_statistics_prepare_as_scikit_learn_does_on_the_pooled_table(tmp_path):
    frame, other = hospitals(), hospitals(100, seed=1)
    federation = from_frames(frame, client="hospital", label="ill", test=other)
    expected = pooled_by_scikit_learn(frame)
    order = np.argsort(frame["hospital"].to_numpy(), kind="stable")
    assert np.allclose(federation.source.train.x.numpy(), expected.transform(numbered(frame))[order], atol=1e-5)
    assert np.allclose(federation.test.x.numpy(), expected.transform(numbered(other)), atol=1e-5)
    preparation = federation.source.preparation
    scaler = expected.named_transformers_["numbers"][1]
    assert [column.mean for column in preparation.numbers] == pytest.approx(scaler.mean_, rel=1e-12)
    assert [column.deviation for column in preparation.numbers] == pytest.approx(scaler.scale_, rel=1e-12)


def test_a_large_mean_costs_no_digits():
    values = 1e9 + np.array([0.0, 1.0, 2.0, 3.0])
    tables = [Table(f"c{i}", 2, {"a": Column("number", part)}) for i, part in enumerate(np.split(values, 2))]
    told = [report.uplink for report in survey(TableStatistics(), clients_of(tables, [np.arange(2)] * 2))]
    found = merged("t", {"c0": told[0], "c1": told[1]}).numbers["a"]
    assert found.squares == pytest.approx(5.0, rel=1e-12)  # of 0, 1, 2, 3 around 1.5


def test_a_client_tells_counts_sums_and_categories_and_no_row():
    frame = hospitals()
    mine = frame[frame["hospital"] == "H3"]
    table = Table(
        "H3",
        len(mine),
        {
            "age": Column("number", mine["age"].to_numpy(float)),
            "ward": Column("category", np.array([None if pd.isna(word) else word for word in mine["ward"]], object)),
        },
        Column("category", mine["ill"].to_numpy(object)),
    )
    work = pickle.loads(pickle.dumps(TableStatistics()))  # as it would be sent
    (report,) = survey(work, clients_of([table], [np.arange(len(mine))]))
    told = report.uplink
    assert told["columns"]["ward"] == {"kind": "category", "counts": mine["ward"].value_counts().sort_index().to_dict()}
    assert told["labels"]["counts"] == mine["ill"].value_counts().sort_index().to_dict()
    age = told["columns"]["age"]
    assert age["count"] == mine["age"].count()
    assert age["sum"] == pytest.approx(mine["age"].sum())
    assert age["squares"] == pytest.approx(mine["age"].var(ddof=0) * mine["age"].count())
    assert len(json.dumps(told)) < 400  # however many rows there are
    assert not work.reads_model


def test_what_is_held_out_does_not_count_but_its_categories_are_known():
    table = Table("c", 3, {"w": Column("category", np.array(["a", "a", "b"], object))})
    (report,) = survey(TableStatistics(), clients_of([table], [np.array([0, 1])]))
    assert report.uplink["columns"]["w"]["counts"] == {"a": 2, "b": 0}


def test_a_preparation_is_saved_as_json_and_prepares_another_table_the_same_way(tmp_path):
    federation = from_table(as_a_hospital_writes(hospitals(), tmp_path / "t.csv"), client="hospital", label="ill")
    preparation = federation.source.preparation
    preparation.save(tmp_path / "preparation.json")
    loaded = Preparation.load(tmp_path / "preparation.json")
    assert loaded == preparation
    assert loaded.inputs == ("age", "marker", "admitted", "ward = heart", "ward = lung", "ward = skin")
    assert loaded.classes == ("no", "yes")
    other = hospitals(60, seed=5).drop(columns=["hospital", "ill"])
    expected = preparation.read(as_a_hospital_writes(other, tmp_path / "new.csv"))
    assert np.array_equal(loaded.read(other), expected)
    assert np.array_equal(pickle.loads(pickle.dumps(loaded)).read(other), expected)
    with pytest.raises(BadInput, match="expected columns 'ward', found 1 missing"):
        loaded.read(other.drop(columns="ward"))
    (tmp_path / "preparation.json").write_text("{}")
    with pytest.raises(BadInput, match="expected a preparation of version 1, found version None"):
        Preparation.load(tmp_path / "preparation.json")


def test_dates_in_prediction_are_read_as_they_were_in_training(tmp_path):
    train = written(
        tmp_path / "t.csv", "client,day,label\na,13/01/1970,0\na,02/01/1970,1\nb,20/01/1970,0\nb,04/01/1970,1\n"
    )
    preparation = from_table(train, test=train, standardise=False).source.preparation
    assert preparation.read(written(tmp_path / "new.csv", "day\n03/02/1970\n")).tolist() == [[31 + 2]]


def test_the_traffic_of_the_statistics_is_counted(tmp_path):
    federation = from_frames(hospitals(), client="hospital", label="ill")
    sent = federation.source.prepared
    assert sent.messages == (8, 8)  # statistics up, the preparation down, once for every hospital
    plain = json.dumps(federation.source.preparation.plain(), ensure_ascii=False).encode()
    assert sent.bytes[0] == 8 * len(plain)
    assert 8 * 200 < sent.bytes[1] < 8 * 600


def test_a_run_counts_the_statistics_as_describing_in_its_first_round():
    federation = from_frames(hospitals(), client="hospital", label="ill")
    engine = Inline(federation, fr.Task.of(fr.models.Logistic(), federation))
    first, second = (state.log for state in fr.train(fr.method(fraction=1.0), engine, rounds=2))
    sent = federation.source.prepared
    assert first.describing == {"messages": 16, "bytes": sum(sent.bytes)}
    assert second.describing == {"messages": 0, "bytes": 0}
    assert first.bytes["client_to_server"] - second.bytes["client_to_server"] == sent.bytes[1]
    assert first.bytes["server_to_client"] - second.bytes["server_to_client"] == sent.bytes[0]
    assert first.messages["client_to_server"] - second.messages["client_to_server"] == 8


def test_numbers_can_be_left_as_they_are():
    frame = pd.DataFrame({"client": ["a", "a", "b"], "x": [1.0, None, 4.0], "label": [0, 1, 0]})
    federation = from_frames(frame, test=frame, standardise=False)
    assert federation.source.train.x.tolist() == [[1.0], [2.5], [4.0]]


# --- labels ----------------------------------------------------------------------------------------------------------


def test_rows_without_a_label_are_left_out_and_counted_and_are_no_class(tmp_path, caplog):
    path = written(tmp_path / "t.csv", "client,a,label\nx,1,yes\nx,2,\nx,3,no\ny,4,NA\ny,5,yes\ny,6,no\n")
    federation = from_table(path, test=written(tmp_path / "test.csv", "a,label\n1,yes\n2,no\n"))
    assert federation.source.class_names == ("no", "yes")
    assert federation.sizes == (2, 2)
    assert federation.source.notes == ("2 rows without a label are left out (x 1, y 1)",)
    assert "t: 2 rows without a label are left out (x 1, y 1)" in caplog.messages


@pytest.mark.parametrize(
    ("labels", "names", "classes"),
    [
        ([0, 1, 2], (), 3),
        ([1.0, None, 2.0], ("1", "2"), 2),
        (["b", "a", "b"], ("a", "b"), 2),
        ([True, False, True], (), 2),
    ],
)
def test_labels_are_those_that_occur(labels, names, classes):
    frame = pd.DataFrame({"client": ["a", "b", "b"], "x": [1.0, 2.0, 3.0], "label": labels})
    federation = from_frames(frame, test=frame)
    assert federation.source.class_names == names
    assert federation.source.classes == classes
    assert set(federation.source.train.y.tolist()) == set(range(classes))


# --- refused ---------------------------------------------------------------------------------------------------------

GOOD = pd.DataFrame({"a": [1.0, 2.0, 3.0], "w": ["u", "v", "u"], "label": ["yes", "no", "yes"]})


@pytest.mark.parametrize(
    ("south", "message"),
    [
        (GOOD.rename(columns={"a": "b"}), r"south: expected the columns of north, found 'a' missing and 'b' besides"),
        (
            GOOD.assign(a=["u", "v", "u"]),
            r"column 'a' to be the same at every client, found number at 'north' and category",
        ),
        (
            GOOD.assign(label=[0, 1, 0]),
            r"labels to be written alike .* found texts at 'north' and whole numbers at 'south'",
        ),
        (
            GOOD.assign(label=["Yes", "No", "Yes"]),
            r"written alike at every client, found 'No' at south and 'no' at north",
        ),
        (GOOD.assign(label=[None] * 3), r"south: expected labels, found none in all of its 3 rows"),
        (
            GOOD.assign(label=[0.5, 1, 0]),
            r"south: expected labels to be whole numbers or texts, found numbers with a frac",
        ),
        (
            GOOD.assign(a=[1.0, np.inf, 2.0]),
            r"south: expected finite values in column 'a', found 1 of 3 that are infinite",
        ),
        (GOOD.assign(a=[[1], [2], [3]]), r"south: expected column 'a' to be numbers, dates or categories, found list"),
        (GOOD.drop(columns="label"), r"south: expected the columns of north, found 'label' missing"),
    ],
)
def test_a_client_that_does_not_fit_is_named(south, message):
    with pytest.raises(BadInput, match=message):
        from_frames({"north": GOOD, "south": south}, test=GOOD)


def test_a_client_with_an_empty_column_fits_with_everybody():
    federation = from_frames({"north": GOOD, "south": GOOD.assign(a=[None] * 3, w=[None] * 3)}, test=GOOD)
    assert federation.source.preparation.numbers[0].mean == 2.0
    assert federation.source.preparation.numbers[0].gaps == 3


def test_free_text_is_refused_by_name_and_never_sent():
    rows = 60
    frame = pd.DataFrame(
        {"client": ["a"] * rows, "x": range(rows), "name": [f"patient {i}" for i in range(rows)], "label": [0, 1] * 30}
    )
    with pytest.raises(
        BadInput, match=r"column 'name' is free text \(60 different texts at a\), which no client sends"
    ):
        from_frames(frame)
    table = Table("a", rows, {"name": Column("category", frame["name"].to_numpy(object))})
    (report,) = survey(TableStatistics(), clients_of([table], [np.arange(rows)]))
    assert "patient" not in json.dumps(report.uplink)
    assert from_frames(frame, categories=["name"]).source.train.shape == (1 + rows,)


def test_a_category_nobody_has_is_refused_or_taken_without_one():
    strange = GOOD.assign(w=["u", "zebra", "v"])
    message = r"column 'w' to hold categories that clients have \('u', 'v'\), found 1 of 3 others: 'zebra'"
    with pytest.raises(BadInput, match=message):
        from_frames({"north": GOOD}, test=strange)
    federation = from_frames({"north": GOOD}, test=strange, unknown="zeros")
    assert federation.test.x[:, 1:].tolist() == [[1, 0], [0, 0], [0, 1]]
    with pytest.raises(BadInput, match='unknown must be "refuse" or "zeros", not \'guess\''):
        from_frames({"north": GOOD}, unknown="guess")


def test_a_constant_column_is_left_out_and_told():
    constant = {"one": [0.1, 0.1, 0.1], "word": ["x", "x", "x"], "nothing": [None] * 3}
    federation = from_frames({"north": GOOD.assign(**constant), "south": GOOD.assign(**constant)}, test=GOOD)
    assert federation.source.preparation.columns == ("a", "w")
    assert federation.source.preparation.constant == ("one", "nothing", "word")
    assert federation.source.notes == (
        "3 columns are left out, because they are the same in every row: 'one', 'nothing', 'word'",
    )
    with pytest.raises(BadInput, match="columns that tell rows apart, found only constant ones: 'a'"):
        from_frames({"north": GOOD[["a", "label"]].assign(a=1)}, test=GOOD)


# --- from the file to the model --------------------------------------------------------------------------------------


def test_a_folder_with_a_table_for_every_client_is_a_federation(tmp_path):
    frame = hospitals()
    for name, rows in frame.groupby("hospital"):
        as_a_hospital_writes(rows.drop(columns="hospital"), tmp_path / f"{name}.csv")
    written(tmp_path / "readme.md", "ours")
    federation = from_table(tmp_path, label="ill")
    assert federation.source.owner_names == tuple(f"H{i}" for i in range(8))
    assert federation.source.notes == ("1 files are left out, because they are no tables: 'readme.md'",)
    whole = from_frames(frame, client="hospital", label="ill", name=tmp_path.name)
    assert torch.equal(federation.source.train.x, whole.source.train.x)


def test_a_hospital_table_is_learned_as_well_as_by_scikit_learn_on_the_pooled_table(tmp_path):
    train, test = hospitals(1600), hospitals(5000, seed=1)
    path = as_a_hospital_writes(train, tmp_path / "train.csv")
    federation = from_table(
        path, client="hospital", label="ill", test=as_a_hospital_writes(test, tmp_path / "test.csv")
    )
    task = fr.Task.of(fr.models.Logistic(), federation)
    algorithm = fr.method(local=fr.Sgd(lr=0.5, batch=32), fraction=1.0)  # 0.1 is not there yet
    *_, state = fr.train(algorithm, Inline(federation, task), rounds=40)
    ours = fr.evaluate(fr.deployed(state), federation.test, Workspaces(task))["accuracy"]
    prepared = pooled_by_scikit_learn(train)
    pooled = LogisticRegression().fit(prepared.transform(numbered(train)), train["ill"])
    theirs = pooled.score(prepared.transform(numbered(test)), test["ill"])
    assert theirs > 0.85  # there is something to learn: the larger class is well below
    assert max((test["ill"] == kind).mean() for kind in ("yes", "no")) < 0.65
    assert abs(ours - theirs) <= 0.01, f"{ours:.3f} against {theirs:.3f}"


def test_a_column_of_different_dates_and_numbers_in_a_frame_keeps_its_types():
    frame = pd.DataFrame({"client": ["a", "b"] * 2, "code": ["1", "2", "1", "2"], "label": [0, 1, 0, 1]})
    assert from_frames(frame, test=frame).source.preparation.inputs == ("code = 1", "code = 2")
    assert from_frames(frame, test=frame, numbers=["code"]).source.preparation.inputs == ("code",)


def test_a_table_is_configured_in_toml_and_repeated_from_what_was_resolved(tmp_path):
    frame = hospitals().assign(ward=lambda rows: rows["ward"].map({"heart": 1, "lung": 2, "skin": 3}))
    path = as_a_hospital_writes(frame, tmp_path / "t.csv")
    values = {"name": "table", "path": str(path), "client": "hospital", "label": "ill", "categories": ["ward"]}
    federation, resolved = federate(values, seed=0)
    assert federation.source.preparation.inputs[-3:] == ("ward = 1", "ward = 2", "ward = 3")
    again, _ = federate(resolved, seed=0)
    assert again.source.preparation == federation.source.preparation


def test_without_pyarrow_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(BadInput, match=r'reading tables needs pyarrow: pip install "fedrelay\[table\]"'):
        from_table(written(tmp_path / "t.csv", "client,a,label\n"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected"),
        ("client,a,label\n", "at least one example, found none"),
        ("client,a,label\nx,1\n", "a whole table, found a damaged one"),
    ],
)
def test_a_file_without_rows_is_refused(tmp_path, text, message):
    with pytest.raises(BadInput, match=message):
        from_table(written(tmp_path / "t.csv", text))


def test_what_excel_writes_first_names_the_delimiter(tmp_path):
    raw = read(written(tmp_path / "t.csv", "sep=;\nclient;a\nx;1,5\n"))
    assert raw.names == ["client", "a"]
    assert raw.comma


def test_labels_are_never_inputs():
    with pytest.raises(BadInput, match="`features` without the columns of labels and clients, found 'label'"):
        from_frames({"north": GOOD}, features=["a", "label"])


def test_rows_of_the_test_table_without_a_label_are_told():
    federation = from_frames({"north": GOOD}, test=GOOD.assign(label=["yes", None, "no"]))
    assert len(federation.test) == 2
    assert federation.source.notes == ("test part: 1 rows without a label are left out (test part 1)",)


def test_categories_that_are_many_only_over_all_clients_are_refused():
    clients = {
        f"c{i}": pd.DataFrame({"a": range(60), "w": [f"{i} {j}" for j in range(15)] * 4, "label": [0, 1] * 30})
        for i in range(8)
    }
    with pytest.raises(
        BadInput, match="column 'w' has 120 categories over all clients, each of which would be an input"
    ):
        from_frames(clients)
    assert from_frames(clients, categories=["w"]).source.train.shape == (121,)


def test_a_number_to_predict_is_no_class_and_nothing_is_told_of_it(tmp_path):
    path = tmp_path / "stays.csv"
    path.write_text("client,age,days\na,50,1.5\na,60,2\na,,4\nb,70,8.25\nb,40,\nb,30,0.5\n")
    federation = from_table(path, label="days", target="numbers", test=path)
    assert federation.source.train.target == "numbers"
    assert sorted(federation.source.train.y.tolist()) == [
        0.5,
        1.5,
        2.0,
        4.0,
        8.25,
    ]  # the row without a number is left out
    assert (federation.source.classes, federation.source.preparation.classes) == (1, ())
    table = Table("a", 2, {"age": Column("number", np.array([1.0, 2.0]))}, Column("number", np.array([3.5, 4.5])))
    (report,) = survey(TableStatistics(classes=False), clients_of([table], [np.arange(2)]))
    assert report.uplink["labels"] == {}
    path.write_text("client,age,days\na,50,soon\na,60,2\n")
    with pytest.raises(BadInput, match="column 'days' to be numbers"):
        from_table(path, label="days", target="numbers")
    with pytest.raises(BadInput, match='"classes" or "numbers", not \'labels\''):
        from_table(path, label="days", target="labels")


def test_times_with_a_zone_are_the_same_moments_in_utc():
    times = pd.date_range("2026-01-01", periods=8, tz="Europe/Berlin")
    frame = pd.DataFrame({"client": ["a", "b"] * 4, "when": times, "label": ["x", "x", "y", "y"] * 2})
    plain = frame.assign(when=times.tz_convert("UTC").tz_localize(None))
    zoned, utc = (from_frames(each) for each in (frame, plain))
    assert torch.equal(zoned.source.train.x, utc.source.train.x)


@pytest.mark.parametrize(
    ("cells", "message"),
    [
        (
            ["0,5", "1,5", "2,5", "3,5"],
            r"column 'a' to be numbers, found texts such as '0,5'; declare numbers = \['a'\]",
        ),
        (["<5", "5.5", "7.1", "9.1"], r"column 'a' to be numbers, found 1 of 4 different cells that are none: '<5'"),
    ],
)
def test_numbers_that_a_frame_has_as_texts_are_not_taken_for_categories(cells, message):
    frame = pd.DataFrame({"client": ["a", "b"] * 4, "a": cells * 2, "label": ["x", "x", "y", "y"] * 2})
    with pytest.raises(BadInput, match=message):
        from_frames(frame)
    assert len(from_frames(frame, categories=["a"]).source.preparation.inputs) == 4
