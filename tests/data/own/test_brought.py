"""What clients tell of data that stays with them, and what they make of it together: as if it were in one place."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from PIL import Image

from fedrelay import BadInput
from fedrelay.data.own import from_folder, from_table
from fedrelay.data.own.brought import ArraysBrought, TableBrought, agree, standing_in
from fedrelay.data.own.brought_pictures import PicturesBrought


def plain(tree):
    """As it is after it was sent."""
    return json.loads(json.dumps(tree))


def test_tables_become_the_rows_that_they_become_in_one_place(tmp_path):
    rng = np.random.default_rng(1)
    folder = tmp_path / "tables"
    folder.mkdir()
    for name in ("a", "b", "c"):
        rows = [f"{rng.normal():.3f},{rng.choice(['x', 'y', 'z'])},{rng.integers(0, 3)}" for _ in range(15)]
        (folder / f"{name}.csv").write_text("one,two,kind\n" + "\n".join(rows) + "\n", encoding="utf-8")
    test = folder.parent / "test.csv"
    test.write_text("one,two,kind\n0.5,x,1\n-1,z,0\n", encoding="utf-8")
    data = {"label": "kind"}
    brought = {name: TableBrought.read(folder / f"{name}.csv", name, data) for name in ("a", "b", "c")}
    agreed = plain(agree({name: plain(one.told()) for name, one in brought.items()}, data))
    whole = from_table(folder, label="kind", test=test)
    for number, one in enumerate(brought.values()):
        x, y = one.prepared(agreed).train.take(slice(0, 15))
        expected = whole.client(number)
        assert torch.equal(x, expected.take(torch.arange(15), None)[0])
        assert torch.equal(y, expected.take(torch.arange(15), None)[1])
    stands = standing_in(("a", "b", "c"), (15, 15, 15), agreed, data, test=test)
    assert (stands.names, stands.sizes) == (whole.names, whole.sizes)
    assert torch.equal(stands.test.x, whole.test.x)
    assert torch.equal(stands.test.y, whole.test.y)
    assert stands.classes_of_clients() is None
    assert not stands.source.train.x.any()


@pytest.mark.parametrize("deep", [False, True])
def test_pictures_become_those_that_they_become_in_one_place(deep, tmp_path):
    rng = np.random.default_rng(2)
    folder = tmp_path / "pictures"
    classes = {"a": ("cat", "dog"), "b": ("dog", "owl")}
    for client, kinds in classes.items():
        for kind in kinds:
            (folder / client / kind).mkdir(parents=True)
            for number in range(3):
                most = 4000 if deep else 255
                pixels = rng.integers(0, most, (6, 6)).astype(np.uint16 if deep else np.uint8)
                Image.fromarray(pixels).save(folder / client / kind / f"{number}.png")
    data = {"size": 6}
    brought = {name: PicturesBrought.read(folder / name, name, data) for name in classes}
    agreed = plain(agree({name: plain(one.told()) for name, one in brought.items()}, data))
    assert agreed["class_names"] == ["cat", "dog", "owl"]
    levels = agreed["levels"] or None
    whole = from_folder(folder, size=6, test=0.3, levels=None if levels is None else tuple(levels))
    expected = {image.numpy().tobytes(): int(y) for image, y in zip(*whole.source.train.take(slice(None)), strict=True)}
    held = {image.numpy().tobytes(): int(y) for image, y in zip(*whole.test.take(slice(None)), strict=True)}
    found = {}
    for one in brought.values():
        x, y = one.prepared(agreed).train.take(slice(0, 6))
        found |= {image.numpy().tobytes(): int(label) for image, label in zip(x, y, strict=True)}
    assert found == {**expected, **held}
    stands = standing_in(tuple(classes), (6, 6), agreed, data, test=folder / "b")
    assert len(stands.test) == 6
    assert stands.source.class_names == ("cat", "dog", "owl")


def test_arrays_keep_their_form_and_know_all_classes():
    rng = np.random.default_rng(3)
    pairs = {name: (rng.normal(size=(5, 4)), np.array([0, top, 0, top, top])) for name, top in (("a", 1), ("b", 3))}
    brought = {name: ArraysBrought(name, pair) for name, pair in pairs.items()}
    told = {name: plain(one.told()) for name, one in brought.items()}
    agreed = plain(agree(told, {}))
    assert agreed["classes"] == 4
    source = brought["a"].prepared(agreed)
    assert source.classes == 4
    np.testing.assert_array_equal(source.train.x, pairs["a"][0].astype(np.float32))
    assert standing_in(("a", "b"), (5, 5), agreed, {}).source.train.shape == (4,)


def test_what_does_not_go_together_is_refused_with_names():
    arrays = {
        name: ArraysBrought(name, (np.zeros((4, width)), np.array([0, 1, 0, 1]))).told()
        for name, width in (("a", 3), ("b", 3), ("c", 5))
    }
    with pytest.raises(BadInput, match=r"the clients' arrays differ: c has inputs \[5\]"):
        agree(arrays, {})
    with pytest.raises(BadInput, match="clients bring different kinds of data"):
        agree({"a": arrays["a"], "b": {"kind": "table"}}, {})
