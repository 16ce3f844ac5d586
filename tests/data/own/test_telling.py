"""What clients tell of their data is believed within bounds, and whoever does not go with most others is found."""

from __future__ import annotations

import pytest

from fedrelay import BadInput
from fedrelay.data.own.telling import MOST_ROWS, NoMajority, check_bounds, misfits

ARRAYS = {
    "kind": "arrays",
    "rows": 5,
    "shape": [4],
    "type": "float32",
    "target": "classes",
    "targets": [],
    "classes": 3,
}
FOLDER = {"kind": "folder", "rows": 5, "shape": [8, 8, 3], "type": "uint8", "classes": ["cat", "dog"]}


def table(**columns: str) -> dict:
    """A client's statistics of columns of these kinds."""
    told = {
        name: {"kind": kind, "count": 5, "sum": 10.0, "squares": 3.0}
        if kind == "number"
        else {"kind": kind, "counts": {"a": 3, "b": 2}}
        for name, kind in columns.items()
    }
    return {"kind": "table", "rows": 5, "columns": told, "labels": {"kind": "number", "counts": {"0": 2, "1": 3}}}


TABLE = table(age="number", sex="category")


def changed(tree: dict, *path: str, to: object) -> dict:
    key, *rest = path
    return {**tree, key: changed(tree[key], *rest, to=to) if rest else to}


@pytest.mark.parametrize("told", [ARRAYS, FOLDER, TABLE, {**ARRAYS, "rows": MOST_ROWS}], ids=str)
def test_what_clients_usually_tell_is_taken(told):
    check_bounds(told)


@pytest.mark.parametrize(
    "told",
    [
        *(
            changed(tree, "rows", to=rows)
            for tree in (ARRAYS, FOLDER, TABLE)
            for rows in (10**12, 0, -1, 2.0, True, "5")
        ),
        changed(ARRAYS, "shape", to=[1 << 20, 1 << 20]),
        changed(ARRAYS, "shape", to=[10**400]),
        changed(ARRAYS, "shape", to=[-1, 4]),
        changed(ARRAYS, "shape", to=[1] * 100),
        changed(ARRAYS, "type", to="__class__"),
        changed(ARRAYS, "target", to="anything"),
        changed(ARRAYS, "targets", to=[1 << 40]),
        changed(ARRAYS, "classes", to=10**9),
        changed(FOLDER, "shape", to=[1 << 30]),
        changed(FOLDER, "classes", to=[1, 2]),
        changed(FOLDER, "classes", to=["x" * 10_000]),
        changed(FOLDER, "range", to=[0.0, float("nan")])
        if "range" in FOLDER
        else {**FOLDER, "range": [0.0, float("nan")]},
        changed(TABLE, "columns", "age", "sum", to=float("inf")),
        changed(TABLE, "columns", "age", "squares", to=-1.0),
        changed(TABLE, "columns", "age", "count", to=10**30),
        changed(TABLE, "columns", "age", "kind", to="matrix"),
        changed(TABLE, "columns", "sex", "counts", to={"a": -1}),
        changed(TABLE, "labels", "counts", to={"zero": 5}),
    ],
    ids=lambda told: str(told)[:60],
)
def test_what_no_server_can_hold_is_refused(told):
    with pytest.raises(BadInput, match="its "):
        check_bounds(told)


@pytest.mark.parametrize(
    ("usual", "other", "says"),
    [
        (ARRAYS, {**ARRAYS, "shape": [5]}, "the clients' arrays differ"),
        (ARRAYS, FOLDER, "different kinds of data"),
        (FOLDER, {**FOLDER, "shape": [9, 9, 3]}, "the clients' pictures differ"),
        (FOLDER, {**FOLDER, "classes": ["Cat", "dog"]}, "clients write classes differently"),
        (TABLE, table(age="category", sex="category"), "column 'age' to be the same at every client"),
        (TABLE, table(age="number", size="category"), "has a column 's"),
        (TABLE, table(age="number", sex="category", dose="number"), "has a column 'dose'"),
        (TABLE, {**TABLE, "labels": {"kind": "category", "counts": {"ill": 5}}}, "labels to be written alike"),
        (TABLE, {**TABLE, "labels": {}, "columns": {}}, "has a column 'age'"),
    ],
    ids=lambda part: str(part)[:30],
)
@pytest.mark.parametrize("first", [True, False])
def test_whoever_does_not_go_with_most_others_is_named_with_the_reason(usual, other, says, first):
    told = {"east": usual, "north": usual, "odd": other, "west": usual}
    if first:
        told = {"odd": other, **told}
    found = misfits(told, {})
    assert list(found) == ["odd"]
    assert says in found["odd"]
    assert misfits({name: tree for name, tree in told.items() if name != "odd"}, {}) == {}


def test_two_that_differ_from_most_in_two_ways_are_both_found():
    told = {"a": {**ARRAYS, "shape": [5]}, "b": ARRAYS, "c": FOLDER, "d": ARRAYS, "e": ARRAYS}
    assert sorted(misfits(told, {})) == ["a", "c"]


def test_of_two_that_disagree_nobody_is_the_odd_one():
    told = {"east": ARRAYS, "north": {**ARRAYS, "shape": [5]}}
    for both in (told, dict(reversed(told.items())), {**told, "south": told["north"], "west": ARRAYS}):
        with pytest.raises(NoMajority, match=r"the data of (east and north|north and east) does not go together"):
            misfits(both, {})
    nonsense = {**TABLE, "columns": 5}  # it goes with nobody, so it does not count
    assert list(misfits({**told, "south": ARRAYS, "west": nonsense}, {})) == ["north", "west"]
